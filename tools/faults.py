"""Puts known faults into a copy of the code, one at a time, and says which the inner loop notices.

    python tools/faults.py              # all of them, room by room
    python tools/faults.py ops feed     # those of some rooms

Each fault is a file, a piece of its text that occurs once, and a replacement. The tests
are `pytest --few` of the fault's room, the inner loop of development. A fault that no
test notices is a test that is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """One change that makes the program wrong."""

    room: str  # whose it is
    file: str  # relative to the root
    old: str  # occurs once in the file
    new: str  # the replacement
    tests: str  # tests that should fail, below tests/, separated by spaces


FAULTS = [
    Fault("ir", "ztorch/ir/rules.py", "first >= 0 and last < m.size", "first >= 0 and last <= m.size", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/rules.py", "return math.gcd(known[1], known[2])", "return known[1]", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/rules.py", "return known[0] << i.args[1].number", "return known[0] << i.args[1].number + 1", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/rules.py", "return (rows - 1) * int(", "return (rows - 2) * int(", "ir/test_verify.py ir/test_verify_attributes.py ir/test_matrices.py"),
    Fault("ir", "ztorch/ir/rules.py", "0 <= v < r.instr.args[0].lanes,", "0 <= v <= r.instr.args[0].lanes,", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/rules.py", "0 <= n < 2 * r", "0 <= n <= 2 * r", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/rules.py", "self.rule(x.lanes > 1, ", "self.rule(x.lanes > 0, ", "ir/test_verify.py ir/test_verify_attributes.py"),
    Fault("ir", "ztorch/ir/safe.py", "b.lt(x, float(high))", "b.le(x, float(high))", "ir/test_safe.py"),
    Fault("ir", "ztorch/ir/division.py", "(factor * by - power) < power", "(factor * by - power) <= power", "ir/test_division.py"),
    Fault("ir", "ztorch/ir/division.py", "if divisor[0] <= 0:", "if divisor[0] < 0:", "ir/test_division.py"),
    Fault("ir", "ztorch/ir/races.py", "self.epoch.take(at) == epoch", "self.epoch.take(at) > epoch", "ir/test_threads.py"),
    Fault("ir", "ztorch/ir/races.py", "(last != group) | same_epoch", "(last != group) & same_epoch", "ir/test_threads.py"),
    Fault("lower", "ztorch/lower/reduction.py", "self.cost(v) > RECOMPUTE_SLOTS", "self.cost(v) >= RECOMPUTE_SLOTS", "lower/test_rules.py lower/test_product_rules.py"),
    Fault("lower", "ztorch/lower/reduction.py", "self._of_source(v) + 1", "self._of_source(v)", "lower/test_rules.py lower/test_product_rules.py"),
    Fault("lower", "ztorch/lower/alike.py", "if certain and low == flat.const:", "if certain:", "lower/test_alike.py"),
    Fault("lower", "ztorch/lower/alike.py", "max(end, high + 1)", "max(end, high)", "lower/test_alike.py"),
    Fault("lower", "ztorch/lower/products.py", "if m <= NARROW_ROWS and fixed", "if m < NARROW_ROWS and fixed", "lower/test_rules.py lower/test_product_rules.py"),
    Fault("lower", "ztorch/lower/grid_operands.py", "widths = (widest, widest // 2)", "widths = (widest, widest)", "lower/test_grid.py"),
    Fault("lower", "ztorch/lower/grid_operands.py", ">= widest // 2 * tile.threads", "> widest // 2 * tile.threads", "lower/test_grid.py"),
    Fault("lower", "ztorch/lower/tiling.py", "Run(last.start + last.size * (last.count - 1), last.size, 1)", "Run(last.start, last.size, 1)", "lower/test_contract.py lower/test_rules.py lower/test_product_rules.py"),
    Fault("lower", "ztorch/lower/tiling.py", "if panel % wide:", "if wide > panel > 0:", "lower/test_rules.py lower/test_product_rules.py"),
    Fault("lower", "ztorch/lower/contract.py", "and end == math.ceil(self.n / lanes)", "", "lower/test_contract.py"),
    Fault("lower", "ztorch/lower/contract.py", "(whole, k, 1)) if", "(whole, k - 1, 1)) if", "lower/test_contract.py"),
    Fault("lower", "ztorch/lower/contract.py", "used > limits.vector_registers", "used > limits.vector_registers + 1", "lower/test_schedules.py"),
    Fault("lower", "ztorch/lower/barriers.py", "(writes or wrote) and _conflict(a, b)", "writes and _conflict(a, b)", "lower/test_threads.py"),
    Fault("lower", "ztorch/lower/barriers.py", "min(2, s.turns)", "min(1, s.turns)", "lower/test_loop_barriers.py"),
    Fault("lower", "ztorch/lower/plan.py", "(-stride if self.body.reverse else stride, ", "(stride, ", "lower/test_loop_barriers.py"),
    Fault("lower", "ztorch/lower/recurrence.py", "if flat != own[v]:", "if False:", "lower/test_recurrence.py"),
    Fault("lower", "ztorch/lower/independent.py", "if body.outs or not settles(", "if body.outs and not settles(", "lower/test_recurrence.py"),
    Fault("lower", "ztorch/lower/recurring.py", "for e, k, x in kept:", "for e, k, x in kept[:1]:", "lower/test_recurrence.py"),
    Fault("lower", "ztorch/lower/turns.py", "stay = first_values(topological(open_body.roots))", "stay = set()", "lower/test_recurrence.py"),
    Fault("graph", "ztorch/graph/merging.py", "or k == body.proceed}", "}", "arrays/test_control.py"),
    Fault("lower", "ztorch/lower/histories.py", "sign = -1 if body.reverse else 1", "sign = 1", "graph/test_loop.py"),
    Fault("lower", "ztorch/lower/placement.py", "if last > home:", "if last > home + 1:", "lower/test_rules.py lower/test_product_rules.py lower/test_any_order.py"),
    Fault("lower", "ztorch/lower/grid_epilogue.py", "self.b.lt(column, self.n) if self.n % self.block.columns", "None if self.n % self.block.columns", "lower/test_grid.py"),
    Fault("lower", "ztorch/lower/grid_strips.py", "if partial else None", "if False else None", "lower/test_grid.py"),
    Fault("lower", "ztorch/lower/grid_epilogue.py", "            self.meet()  # before the next band", "            pass  # before the next band", "lower/test_grid_mma.py"),
    Fault("lower", "ztorch/lower/fuse.py", "if any(s in flats for s in self._sources(v)):", "if False:", "lower/test_fuse.py"),
    Fault("lower", "ztorch/lower/fuse.py", "if s in joined and joined[s] != at:", "if False:", "lower/test_fuse.py"),
    Fault("lower", "ztorch/lower/fuse.py", "            if between:", "            if False:", "lower/test_fuse.py"),
    Fault("codegen", "ztorch/codegen/elf.py", "relocation.offset + width > len(section.data)", "relocation.offset > len(section.data)", "codegen/test_elf_checks.py"),
    Fault("codegen", "ztorch/codegen/elf.py", "if not 0 <= value < ADDRESS_LIMIT:", "if value >= ADDRESS_LIMIT:", "codegen/test_elf_limits.py codegen/test_elf_checks.py"),
    Fault("codegen", "ztorch/codegen/elf.py", "if remaining:", "if len(remaining) > 1:", "codegen/test_elf_checks.py codegen/test_elf.py"),
    Fault("codegen", "ztorch/codegen/elf.py", "                if symbol.undefined:", "                if False:", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_contents.py", '.add(b"\\0\\0\\0\\0")  # end marker', '.add(b"")  # end marker', "codegen/test_elf.py codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_unwind.py", "for row in sorted(rows))", "for row in rows)", "codegen/test_elf.py codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_unwind.py", "if size < 4 or end > len(frame):", "if size < 4:", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_unwind.py", "at + 8 + struct.calcsize(form) > end", "at + 8 > end", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_reloc.py", "<= value < 1 << bits - 1:", "<= value <= 1 << bits - 1:", "codegen/test_elf_reloc.py"),
    Fault("codegen", "ztorch/codegen/elf_reloc.py", "(pages >> 2) & 0x7FFFF", "(pages >> 2) & 0x3FFFF", "codegen/test_elf_reloc.py"),
    Fault("codegen", "ztorch/codegen/elf_layout.py", "self.end = up(self.end, self.page)", "self.end = up(self.end, 8)", "codegen/test_elf.py codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_object.py", "if value > room or", "if value > room + 1 or", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_object.py", "if info >> 32 >= symbols:", "if info >> 32 > symbols:", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_merge.py", "Relocation(r.section + first, r.offset", "Relocation(r.section, r.offset", "compile/test_cpu_code.py"),
    Fault("codegen", "ztorch/codegen/elf_merge.py", "symbol.section + first if in_section", "symbol.section if in_section", "compile/test_cpu_code.py"),
    Fault("codegen", "ztorch/codegen/elf_merge.py", "        if symbol.name not in defined:\n", "        if True:\n", "compile/test_cpu_code.py"),
    Fault("codegen", "ztorch/codegen/elf_tables.py", "hashes[-1] |= 1 ", "hashes[-1] |= 0 ", "codegen/test_elf_limits.py"),
    Fault("codegen", "ztorch/codegen/elf_tables.py", "1 + len(self.names) - len(exported)", "len(self.names) - len(exported)", "codegen/test_elf.py"),
    Fault("codegen", "ztorch/codegen/elf_amdgcn.py", "if r.offset + 8 > section.size:", "if r.offset > section.size:", "codegen/rocm/test_linking.py codegen/rocm/test_code_objects.py"),
    Fault("codegen", "ztorch/codegen/elf_amdgcn.py", "_gnu(names[k + 1]) % count != value % count", "_gnu(names[k + 1]) != value", "codegen/rocm/test_linking.py codegen/rocm/test_code_objects.py"),
    Fault("codegen", "ztorch/codegen/archive.py", "if at >= 1 << 32:", "if at >= 1 << 33:", "codegen/test_archive.py"),
    Fault("codegen", "ztorch/codegen/archive.py", "+ 2\n        offsets.append(at)", "+ 1\n        offsets.append(at)", "codegen/test_archive.py"),
    Fault("recurrence", "ztorch/layers/recurrent.py", "every = OPS.flip(every, 0) if self.go_backwards else every", "every = every", "layers/test_recurrent.py"),
    Fault("recurrence", "ztorch/layers/recurrent.py", "and not is_zero(flatten(states)[0][own]):", "and False:", "layers/test_recurrent_states.py"),
    Fault("recurrence", "ztorch/layers/recurrent.py", "reverse=self.go_backwards)", "reverse=False)", "layers/test_recurrent.py"),
    Fault("recurrence", "ztorch/layers/masks.py", "and len(more) <= self.before_mask", "", "layers/test_masks.py"),
    Fault("recurrence", "ztorch/layers/attention.py", "for mask in dict.fromkeys(masks):", "for mask in ():", "layers/test_masks.py"),
    Fault("recurrence", "ztorch/model/row_scores.py", "count = OPS.sum(count * weights) / OPS.where(weight > 0.0, weight, 1.0)", "count = OPS.sum(count * weights)", "layers/test_masks.py"),
    Fault("recurrence", "ztorch/model/row_scores.py", "total / OPS.where(count > 0.0, count, 1.0)", "total / count", "layers/test_masks.py"),
    Fault("recurrence", "ztorch/model/trace.py", "                                      context.memories)}", "                                      {})}", "layers/test_recurrent_states.py layers/test_stateful_layers.py"),
    Fault("recurrence", "ztorch/lower/frozen.py", 'and v.attrs["name"] not in self.changing', "", "layers/test_recurrent_states.py layers/test_stateful_layers.py"),
    Fault("recurrence", "ztorch/feed/adapter.py", "if self.stateful and rows % batch_size:", "if self.stateful and rows > batch_size:", "layers/test_recurrent_states.py layers/test_stateful_layers.py"),
    Fault("recurrence", "ztorch/compile/cpu_code.py", "tuple(around[:len(strides)])", "()", "layers/test_recurrent_states.py layers/test_stateful_layers.py"),
    Fault("recurrence", "ztorch/interchange/onnx/nodes/loops.py", "OPS.where(go, v, old)", "v", "interchange/test_onnx_loops.py"),
    Fault("recurrence", "ztorch/interchange/onnx/writers/loops.py", "order = int(body.reverse)", "order = 0", "interchange/test_onnx_loops.py"),
    Fault("templates", "templates/llvm/instr.ll.j2", "'une' if how == 'ne'", "'one' if how == 'ne'", "codegen/test_render.py"),
    Fault("templates", "templates/llvm/instr.ll.j2", "'a' if d.k == 's' else 'l' }}shr", "'l' }}shr", "codegen/test_render.py"),
    Fault("templates", "templates/llvm/workers.ll.j2", "  call void @zt.barrier(ptr %control, i64 %workers)\n  ret void", "  ret void", "backends/test_workers.py"),
    Fault("templates", "templates/llvm/workers.ll.j2", "atomicrmw sub ptr %sleepers", "atomicrmw add ptr %sleepers", "backends/test_workers.py"),
    Fault("templates", "templates/llvm/workers.ll.j2", "i32 2147483647, ptr null", "i32 0, ptr null", "backends/test_workers.py"),
    Fault("runtime", "ztorch/runtime/spec.py", "block[self.offset:self.offset + memory.nbytes]", "block[:memory.nbytes]", "runtime/test_state_order.py"),
    Fault("runtime", "ztorch/runtime/state_order.py", "array.transpose(np.argsort(numbers))", "array.transpose(numbers)", "runtime/test_state_order.py"),
    Fault("runtime", "ztorch/runtime/executable.py", "if missing:", "if len(missing) > 1:", "runtime/test_executable.py"),
    Fault("runtime", "ztorch/runtime/executable.py", "SHARED_KERNEL_CYCLES * function.runs:\n            return 1\n        return", "SHARED_KERNEL_CYCLES:\n            return 1\n        return", "runtime/test_executable.py"),
    Fault("runtime", "ztorch/runtime/executable.py", "return state.read(self._params).copy()", "return state.read(self._params)", "runtime/test_executable.py"),
    Fault("runtime", "ztorch/runtime/program_checks.py", "if start < end:", "if start < end - 1:", "runtime/test_manifest.py"),
    Fault("runtime", "ztorch/runtime/program_checks.py", "if at >= len(tensors):", "if at > len(tensors):", "runtime/test_manifest.py"),
    Fault("runtime", "ztorch/runtime/program_checks.py", "if launch.entry >= len(spec.entries):", "if launch.entry > len(spec.entries):", "runtime/test_manifest.py"),
    Fault("runtime", "ztorch/runtime/program_checks.py", "at + high + nbytes > sizes[space]:", "at + high > sizes[space]:", "runtime/test_manifest.py"),
    Fault("runtime", "ztorch/runtime/program_checks.py", "if at + low < 0 or", "if", "runtime/test_hostile_loops.py"),
    Fault("runtime", "ztorch/runtime/loops.py", "if inside and end > (last", "if inside and end < (last", "runtime/test_hostile_loops.py"),
    Fault("runtime", "ztorch/runtime/loops.py", "if loop not in around[launch]:", "if loop >= len(f.loops):", "runtime/test_hostile_loops.py"),
    Fault("runtime", "ztorch/runtime/spec.py", "len(self.launches or self.kernels)", "len(self.kernels)", "runtime/test_hostile_loops.py"),
    Fault("backends", "ztorch/backends/device_memory.py", "at + nbytes > buffer.nbytes:", "at > buffer.nbytes:", "backends/test_contract.py"),
    Fault("backends", "ztorch/backends/device_memory.py", "abs(source_at - target_at) < nbytes", "abs(source_at - target_at) <= nbytes", "backends/test_contract.py"),
    Fault("backends", "ztorch/backends/device.py", "e.size < 1 or e.at + e.size > len(code)", "e.size < 1 or e.at > len(code)", "backends/test_contract.py"),
    Fault("backends", "ztorch/backends/library.py", "if digest.digest()[:_ID_BYTES] != build_id:", "if not build_id:", "backends/test_library.py"),
    Fault("host", "ztorch/host/choices.py", "if len(content) > MOST_BYTES:", "if len(content) >= MOST_BYTES:", "host"),
    Fault("host", "ztorch/host/choices.py", "all(type(x) is of for x in v)", "all(isinstance(x, of) for x in v)", "host"),
    Fault("host", "ztorch/host/detect.py", '"M": 1 << 20', '"M": 1 << 10', "host"),
    Fault("host", "ztorch/host/detect.py", "not 1 <= level <= 3", "not 1 <= level < 3", "host"),
    Fault("host", "ztorch/host/processor.py", "return min(quotas)", "return quotas[-1]", "host"),
    Fault("host", "ztorch/host/memory.py", "start = -address % align", "start = address % align", "host"),
    Fault("host", "ztorch/host/memory.py", "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS", "mmap.MAP_SHARED | mmap.MAP_ANONYMOUS", "host"),
    Fault("artifact", "ztorch/artifact/c_interface.py", "while name in self.taken:", "if name in self.taken:", "artifact/test_c_names.py"),
    Fault("artifact", "ztorch/artifact/c_interface.py", 'for suffix in ("", "_in")', 'for suffix in ("",)', "artifact/test_c_export.py"),
    Fault("artifact", "ztorch/artifact/c_interface.py", "batch, params, arena, BUFFER_ALIGN))", "batch, BUFFER_ALIGN))", "artifact/test_c_names.py"),
    Fault("artifact", "ztorch/artifact/write.py", "params[offset:offset + size]", "params[:size]", "artifact/test_write.py"),
    Fault("program", "ztorch/program/generate.py", "if len(self.window) > capacity:", "if len(self.window) > capacity + 1:", "program/test_generate.py"),
    Fault("program", "ztorch/program/generate.py", "self.window[capacity - capacity // 2:]", "self.window[capacity // 2:]", "program/test_generate.py"),
    Fault("program", "ztorch/program/generate.py", "tokens.max() <= limits.high", "tokens.max() <= limits.high + 1", "program/test_generate.py"),
    Fault("program", "ztorch/program/stateful.py", 'vars(self).pop("history", None)', "pass", "program/test_program.py program/test_program_stops.py"),
    Fault("program", "ztorch/program/stateful.py", "params = executable.params.copy()", "params = executable.params", "program/test_program.py program/test_program_stops.py"),
    Fault("program", "ztorch/program/generate.py", "self.capacity - longest + 1", "self.capacity - longest + 2", "program/test_generate.py"),
    Fault("program", "ztorch/program/generate.py", "whole_seed(drawing.seed) + first + k", "whole_seed(drawing.seed) + k", "program/test_generate.py"),
    Fault("program", "ztorch/program/beams.py", "(*source.text, *text)", "(*beams[k].text, *text)", "program/test_beams.py"),
    Fault("model", "ztorch/model/sampling.py", "HALVINGS = 32", "HALVINGS = 8", "model/test_sampling.py"),
    Fault("model", "ztorch/model/sampling.py", "OPS.where(kept, odds, 0.0)", "odds", "model/test_sampling.py"),
    Fault("model", "ztorch/model/sampling.py", "logits / penalty, logits * penalty", "logits / penalty, logits / penalty", "model/test_sampling.py"),
    Fault("model", "ztorch/model/beams.py", "now[\"length\"] + OPS.cast(live, \"int32\")", "now[\"length\"] + 1", "program/test_beams.py"),
    Fault("layers", "ztorch/layers/decoding.py", "OPS.less_equal(OPS.iota(shape, 2)", "OPS.less(OPS.iota(shape, 2)", "program/test_generate.py"),
    Fault("lower", "ztorch/lower/placed.py", "b.ge(place, 0)", "b.ge(place, -1)", "lower/test_placed.py"),
    Fault("lower", "ztorch/lower/placement.py", "state in self.read_by(r) for r in others", "False for r in others", "lower/test_carried_states.py"),
    Fault("model", "ztorch/model/function_graphs.py", "for w in self.model.weights if w.trains]", "for w in self.model.weights]", "model/test_fit_on_models.py"),
    Fault("model", "ztorch/model/loss_scale.py", "OPS.where(finite, grown, OPS", "OPS.where(finite, scale, OPS", "model/test_mixed.py"),
    Fault("model", "ztorch/model/loss_scale.py", "OPS.where(goes_on, count, 0)", "OPS.where(finite, count, 0)", "model/test_mixed.py"),
    Fault("model", "ztorch/model/loss_scale.py", "OPS.maximum(scale * 0.5, 1.0)", "scale * 0.5", "model/test_mixed.py"),
    Fault("interchange", "ztorch/interchange/keras_reader.py", "value == _NEUTRAL[key]", "value != _NEUTRAL[key]", "weights/test_keras.py weights/test_keras_refused.py"),
    Fault("interchange", "ztorch/interchange/onnx/writers/calls.py", "pads=(*(a for a, _ in cuts), *(max(b, 0) for _, b in cuts)),", "pads=(*(a for a, _ in cuts), *(a for a, _ in cuts)),", "interchange/test_onnx_export.py interchange/test_onnx_export_sizes.py"),
    Fault("interchange", "ztorch/interchange/onnx/nodes/indexing.py", 'each, "right") - 1', 'each, "left") - 1', "interchange/test_onnx_suite.py"),
    Fault("interchange", "ztorch/interchange/onnx/runner.py", "if ignored:", "if False:", "interchange/test_onnx_layer.py"),
    Fault("interchange", "ztorch/interchange/onnx/nodes/casts.py", "if not form.has_negative_zero:", "if False:", "interchange/test_onnx_suite.py"),
    Fault("interchange", "ztorch/interchange/onnx/order.py", "if giver is start:", "if False:", "interchange/test_onnx_damage.py"),
    Fault("weights", "ztorch/weights/gguf_blocks.py", "4 * (1 - has_high)", "4 * has_high", "weights/test_gguf.py"),
    Fault("weights", "ztorch/weights/gguf.py", "math.prod(shape) // numbers", "math.prod(shape)", "weights/test_gguf.py"),
    Fault("interchange", "ztorch/interchange/onnx/protobuf.py", 'array.dtype.newbyteorder("<")', 'array.dtype.newbyteorder(">")', "interchange/test_onnx_export.py interchange/test_onnx_export_sizes.py"),
    Fault("interchange", "ztorch/interchange/onnx/writers/calls.py", 'return {"pads": (*low, *high)}', 'return {"pads": (*high, *low)}', "interchange/test_onnx_export.py interchange/test_onnx_export_sizes.py"),
    Fault("verify", "ztorch/verify/compare.py", "return self.error <= self.bound", "return self.error <= 2 * self.bound", "verify/test_verify.py"),
    Fault("verify", "ztorch/verify/compare.py", "np.nan_to_num(error, nan=np.inf)", "np.nan_to_num(error, nan=0.0)", "verify/test_verify.py"),
    Fault("verify", "ztorch/verify/compare.py", "for c in checks if not c.passed)", "for c in checks if c.passed)", "verify/test_verify.py"),
    Fault("verify", "ztorch/verify/probes.py", "reversed(list(enumerate(plan.steps)))", "list(enumerate(plan.steps))", "verify/test_verify.py"),
    Fault("commands", "ztorch/commands/named_arrays.py", '(f"{role}/{name}", name or role)', '(name or role, f"{role}/{name}")', "commands/test_several.py"),
    Fault("commands", "ztorch/commands/data.py", "np.array([known.index(text) for text in texts], np.int32)", "np.arange(len(texts), dtype=np.int32)", "commands/test_cli.py"),
    Fault("commands", "ztorch/commands/loss_options.py", "if len(losses) > 1]:", "if len(losses) > 2]:", "commands/test_several.py"),
    Fault("commands", "ztorch/commands/generate.py", "if known != len(letters):", "if known < len(letters):", "zoo/test_generate_command.py"),
    Fault("ops", "ztorch/ops/pooling.py", "if np.min(counts) == np.max(counts):", "if np.min(counts) <= np.max(counts):", "ops"),
    Fault("ops", "ztorch/ops/pooling.py", "constant(1.0 / counts, x.dtype)", "constant(2.0 / counts, x.dtype)", "ops"),
    Fault("graph", "ztorch/graph/movement.py", "(s0 + s * t0, t0 * t)", "(s0 + s, t0 * t)", "graph"),
    Fault("graph", "ztorch/graph/movement.py", "all(s == 1 or n == 1 for", "any(s == 1 or n == 1 for", "graph"),
    Fault("graph", "ztorch/graph/passes.py", 'v.attrs["name"] == name)', 'v.attrs["name"] != name)', "graph"),
    Fault("graph", "ztorch/graph/passes.py", '{"add", "mul", "eq"', '{"add", "sub", "mul", "eq"', "graph"),
    Fault("losses", "ztorch/losses/regression.py", "OPS.where(size <= self.delta,", "OPS.where(size >= self.delta,", "test_losses.py"),
    Fault("losses", "ztorch/losses/regression.py", "- math.log(2.0)", "- math.log(3.0)", "test_losses.py"),
    Fault("losses", "ztorch/losses/regression.py", "EPSILON)) * 100.0", "EPSILON)) * 10.0", "test_losses.py"),
    Fault("metrics", "ztorch/metrics/accuracy.py", "axis=-1) < self.k", "axis=-1) <= self.k", "test_metrics.py"),
    Fault("metrics", "ztorch/metrics/accuracy.py", "OPS.cast(y_pred > self.threshold", "OPS.cast(y_pred < self.threshold", "test_metrics.py"),
    Fault("layers", "ztorch/layers/normalization.py", "return first + mean, shifted - mean", "return mean, shifted - mean", "layers"),
    Fault("layers", "ztorch/layers/normalization.py", "factor = gamma if factor is None else factor * gamma", "factor = gamma if factor is None else factor", "layers"),
    Fault("layers", "ztorch/model/row_scores.py", "total / OPS.where(count > 0.0, count, 1.0)", "total / values.shape[1]", "program/test_sequence_sizes.py program/test_ragged_training.py"),
    Fault("layers", "ztorch/layers/real_positions.py", "self.declare(v, {} if mask is None else {1: steps})", "self.declare(v, {})", "program/test_padding_and_masks.py"),
    Fault("layers", "ztorch/layers/real_positions.py", "or any(set(axes) - {1} for axes in padded)", "", "program/test_padding_and_masks.py"),
    Fault("layers", "ztorch/layers/masks.py", "first = int(self.reverses_steps)", "first = 0", "program/test_padding_and_masks.py"),
    Fault("layers", "ztorch/layers/context.py", "joined = OPS.bitwise_and(mask, spread(real, mask.rank, 1))", "joined = mask", "program/test_padding_and_masks.py"),
    Fault("feed", "ztorch/feed/array_batches.py", "if self.lengths and self._adapter.stateful:", "if False:", "program/test_padding_and_masks.py"),
    Fault("layers", "ztorch/layers/attention.py", "context.masks.get if causal and value is query", "context.masks.get if value is query", "program/test_sequence_sizes.py program/test_ragged_training.py"),
    Fault("layers", "ztorch/layers/padded_axes.py", "if left.rank - 1 in _axes(left, args[0]) or", "if", "layers/test_padded_axes.py"),
    Fault("runtime", "ztorch/runtime/buckets.py", "axis[bisect_left(axis, n)] for", "axis[bisect_left(axis, n + 1)] for", "program/test_batch_sizes.py"),
    Fault("feed", "ztorch/feed/sequences.py", "self.lengths[rows, None] - 1)", "self.lengths[rows, None])", "feed"),
    Fault("feed", "ztorch/feed/staging.py", "self._real[count:] = 1, 0", "self._real[count:] = 1, 1", "program/test_weighted_scores.py"),
    Fault("feed", "ztorch/feed/array_batches.py", "self.steps = len(self._slices())", "self.steps = max(1, self.rows // batch_size)", "feed"),
    Fault("feed", "ztorch/feed/array_batches.py", "epoch], np.uint64)", "0], np.uint64)", "feed"),
    Fault("training", "ztorch/training/loop.py", "self.batches.epoch(calls, program.epochs_trained, self.steps, in_a_row)", "self.batches.epoch(calls, 0, self.steps, in_a_row)", "training program callbacks"),
    Fault("training", "ztorch/training/history.py", "self._epochs_of.setdefault(name, []).append(epoch)", "self._epochs_of.setdefault(name, []).append(0)", "training"),
    Fault("training", "ztorch/training/loop.py", "self.history.interrupted = True", "self.history.interrupted = False", "training program callbacks"),
    Fault("weights", "ztorch/weights/matching.py", "if p and m and p.fits(m)]", "if p and m]", "weights"),
    Fault("files", "ztorch/files/atomic.py", "if target.exists() and not target.is_file():", "if target.exists() and target.is_symlink():", "files"),
    Fault("codegen", "ztorch/codegen/object_cache.py", "if check != hashlib.sha256(key + code).digest():", "if len(check) != DIGEST:", "codegen/test_object_cache.py codegen/test_object_cache_files.py"),
    Fault("codegen", "ztorch/codegen/object_cache.py", "for _, nbytes, path in sorted(files):", "for _, nbytes, path in sorted(files)[::-1]:", "codegen/test_object_cache.py codegen/test_object_cache_files.py"),
    Fault("codegen", "ztorch/codegen/object_cache.py", 'digest.update(len(raw).to_bytes(8, "little"))', "pass", "codegen/test_object_cache.py codegen/test_object_cache_files.py"),
    Fault("codegen", "ztorch/codegen/assemble.py", "row(_options(target)), llvm_identity(), _source()", "row(_options(target)), _source()", "codegen/test_object_cache.py codegen/test_object_cache_files.py"),
    Fault("templates", "templates/llvm/instr.ll.j2", "icmp slt", "icmp sle", "codegen/test_render.py"),
    Fault("optimizers", "ztorch/optimizers/sgd.py", "self.momentum - down)", "self.momentum + down)", "test_optimizers.py"),
    Fault("initializers", "ztorch/initializers/variance_scaling.py", "math.sqrt(3 * variance)", "math.sqrt(2 * variance)", "test_initializers.py"),
    Fault("arrays", "ztorch/arrays/vmap.py", "return None if axis is None else axis % rank", "return None if axis is None else max(axis, 0)", "arrays/test_vmap.py"),
    Fault("callbacks", "ztorch/callbacks/monitors.py", "if self.wait >= self.patience and epoch > 0:", "if self.wait > self.patience and epoch > 0:", "callbacks/test_callbacks.py"),
    Fault("constraints", "ztorch/constraints/norms.py", "ops.minimum(norms, self.max_value)", "ops.maximum(norms, self.max_value)", "constraints"),
    Fault("regularizers", "ztorch/regularizers/orthogonal.py", "pairs = count * (count - 1) / 2", "pairs = count * count / 2", "regularizers"),
    Fault("data", "ztorch/data/splitting.py", "order[left:left + right]", "order[:right]", "data/test_as_in_keras.py"),
    Fault("kernels", "ztorch/kernels/dependence.py", "if abs(step) == abs(other_step) and (first - second) % step:", "if abs(step) == abs(other_step):", "kernels/test_dependence.py"),
    Fault("kernels", "ztorch/kernels/dependence.py", "s * (count - 1))) for", "s * count)) for", "kernels/test_dependence.py"),
    Fault("library", "ztorch/library/strides.py", "if strides[axis] < width:", "if strides[axis] < width - 1:", "library/test_routines.py library/test_reductions.py"),
    Fault("machines", "ztorch/machines/chips.py", "c.generation < generation and not c.exact", "c.generation < generation", "machines/test_rows.py"),
    Fault("performance", "ztorch/performance/prediction.py", "busiest = math.ceil(groups / gpu.units)", "busiest = groups // gpu.units", "performance"),
    Fault("sources", "ztorch/sources/find.py", '"build", bool(variant))', '"build")', "sources"),
    Fault("tabular", "ztorch/tabular/encoding.py", "record.fill, numbers) - record.origin", "record.fill, numbers) + record.origin", "tabular"),
    Fault("tune", "ztorch/tune/search.py", "if seconds > rule_seconds * GAIN:", "if seconds > rule_seconds / GAIN:", "tune"),
    Fault("compile", "ztorch/lower/params.py", "key = self.limits, shape.key, shape.ops", "key = shape.key, shape.ops", "compile/test_remembered_kernels.py"),
    Fault("compile", "ztorch/lower/alike.py", "tuple(reads.ops) if reads.told else None", "tuple(reads.ops)", "compile/test_remembered_kernels.py"),
    Fault("compile", "ztorch/compile/kernels.py", "return None if current().cache is None else _lowered", "return _lowered", "compile/test_remembered_kernels.py"),
    Fault("codegen", "ztorch/remembered.py", "while self.size > self.most:", "while self.size > self.most + 100:", "codegen/test_object_cache.py codegen/test_object_cache_files.py"),
    Fault("graph", "ztorch/graph/merging.py", "if index >= count:", "if index > count:", "graph/test_loop.py"),
    Fault("kernels", "ztorch/kernels/thread_rules.py", "if pace > 1:", "if pace > 2:", "kernels/test_while.py"),
    Fault("kernels", "ztorch/kernels/thread_rules.py", "turns, pace - 1), pace)", "turns, pace), pace)", "kernels/test_while.py"),
    Fault("files", "ztorch/files/npz.py", "_MOST_TIMES * len(data)", "10 * _MOST_TIMES * len(data)", "files/test_damaged_files.py"),
    Fault("files", "ztorch/files/npz.py", "* kind.itemsize != len(data)", "* kind.itemsize > len(data)", "files/test_damaged_files.py"),
    Fault("files", "ztorch/files/zips.py", "for i in infos) > len(data)", "for i in infos) > 2 * len(data)", "files/test_damaged_files.py"),
    Fault("ops", "ztorch/ops/pooling.py", "max(a, b) >= k for", "max(a, b) > k for", "ops/test_pooling.py"),
    Fault("templates", "templates/llvm/instr.ll.j2", "{{ '32' if d.lanes == 1", "{{ '31' if d.lanes == 1", "codegen/test_render.py"),
    Fault("optimizers", "ztorch/optimizers/rmsprop.py", "x * (1.0 - self.rho))", "x * self.rho)", "test_optimizers.py"),
    Fault("data", "ztorch/data/splitting.py", "left + right > rows:", "left + right > rows + 1:", "data/test_as_in_keras.py"),
    Fault("files", "ztorch/files/safetensors.py", "(-len(text) % 8)", "(len(text) % 8)", "files/test_safetensors.py"),
    Fault("tune", "ztorch/tune/search.py", "if time.perf_counter() > until:", "if False:", "tune"),
    Fault("tabular", "ztorch/tabular/encoding.py", "d.hour + d.minute / 60", "d.hour", "tabular"),
    Fault("tabular", "ztorch/tabular/encoding.py", "abs(known.mean()) > COARSE", "known.mean() > COARSE", "tabular"),
    Fault("runtime", "ztorch/runtime/remote.py", "if known is None or not known.live:", "if known is None:", "runtime/test_remote.py"),
    Fault("runtime", "ztorch/runtime/remote.py", "sum(turns[loop] * stride for", "sum(stride for", "runtime/test_hostile_loops.py"),
    Fault("runtime", "ztorch/runtime/remote.py", "if len({*buffers}) == len(inputs) + len(outputs):", "if len(buffers) == len(inputs) + len(outputs):", "runtime/test_remote.py"),
    Fault("kernels", "ztorch/kernels/loops.py", "length.range[1] if step > 0 else length.range[0]", "length.range[1]", "kernels/test_row_loops.py"),
    Fault("kernels", "ztorch/kernels/loops.py", "x.const + x.terms.get(v, 0) * (v.extent - 1))", "x.const)", "kernels/test_row_loops.py"),
    Fault("kernels", "ztorch/kernels/loops.py", "ast.Lt() if step > 0 else ast.Gt()", "ast.Lt()", "kernels/test_row_loops.py"),
    Fault("arrays", "ztorch/arrays/array_api_extras.py", "if indices.dtype.bits < 32:", "if indices.dtype.bits < 16:", "arrays/test_array_api_shapes.py"),
    Fault("library", "ztorch/library/reductions.py", 'op == "mean" and x.dtype.is_int and y.dtype.is_float', 'op == "mean" and y.dtype.is_float', "library/test_routines.py library/test_reductions.py"),
    Fault("interchange", "ztorch/interchange/onnx/nodes/pooling.py", 'n.shape(0)[:2], *(1,) * len(sizes)), 0, "int64") * n.shape(0)[1]', 'n.shape(0)[:2], *(1,) * len(sizes)), 0, "int64")', "interchange/test_onnx_nodes.py"),
    Fault("callbacks", "ztorch/callbacks/monitors.py", "value - self.min_delta > than", "value > than", "callbacks/test_callbacks.py"),
    Fault("files", "ztorch/files/container.py", "if method or flags:", "if False:", "files/test_damaged_files.py"),
    Fault("files", "ztorch/files/safetensors.py", "if begin + end > len(data):", "if begin + end > len(data) + 8:", "files/test_safetensors.py"),
    Fault("ops", "ztorch/ops/finite.py", "infinity = (1 << of.bits - of.significand) - 1 << of.significand - 1", "infinity = (1 << of.bits - of.significand - 1) - 1 << of.significand", "ops/test_formulas.py"),
    Fault("schedules", "ztorch/schedules.py", "p = p - restarts", "p = p - 0.0 * restarts", "test_optimizer_options.py"),
    Fault("schedules", "ztorch/schedules.py", "OPS.maximum(OPS.ceil(step / span), 1.0)", "OPS.ceil(step / span)", "test_optimizer_options.py"),
    Fault("weights", "ztorch/weights/torch_layouts.py", "3: (1, 0, 2)", "3: (0, 1, 2)", "weights/test_torch.py"),
]


def place(fault: Fault, copy: Path) -> str:
    """Writes a fault into a copy of the code, and gives the text that was there."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file} holds {fault.old!r} {text.count(fault.old)} times, not once: "
                         "the table in tools/faults.py is out of date")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return text


def fails(tests: str, copy: Path) -> bool:
    """Whether the inner loop of a room fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--few", "-x", "-p", "no:cacheprovider",
         *(f"tests/{name}" for name in tests.split())],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False)
    if done.returncode > 2:  # below zero: the process crashed, which is noticed
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode != 0


def main(rooms: list[str]) -> int:
    chosen = [f for f in FAULTS if not rooms or f.room in rooms]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))
        for tests in dict.fromkeys(f.tests for f in chosen):
            if fails(tests, copy):
                raise SystemExit(f"{tests}: these tests fail without any fault, so they tell nothing")
        for fault in chosen:
            text = place(fault, copy)
            caught = fails(fault.tests, copy)
            (copy / fault.file).write_text(text, encoding="utf-8")
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {fault.room:12} {fault.file}: "
                  f"{fault.old!r} -> {fault.new!r}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
