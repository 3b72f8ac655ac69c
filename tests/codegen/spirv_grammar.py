"""Makes the grammar that our SPIR-V assembler reads from the one that Khronos publishes.

    python -m tests.codegen.spirv_grammar   # writes ztorch/codegen/grammar/spirv.json.gz again
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

HEADERS = Path("/usr/include/spirv/unified1")  # Debian's package spirv-headers
VENDORED = Path(__file__).parents[2] / "ztorch/codegen/grammar/spirv.json.gz"
VENDORS = re.compile(r"(INTEL|NV|NVX|AMD|AMDX|GOOGLE|HUAWEI|QCOM|ARM)$")
SETS = {"GLSL.std.450": "extinst.glsl.std.450", "OpenCL.std": "extinst.opencl.std.100"}
IDS = {"IdRef", "IdScope", "IdMemorySemantics"}
UNREAD = {"OpSwitch", "OpSpecConstantOp"}  # the assembler does not know their operands


def reduced(core: dict[str, Any], sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Names, numbers and operands; nothing of one vendor alone."""
    return {
        "copyright": core["copyright"],
        "version": [core["major_version"], core["minor_version"], core["revision"]],
        "instructions": {i["opname"]: [i["opcode"], _operands(i)]
                         for i in core["instructions"]
                         if not VENDORS.search(i["opname"]) and i["opname"] not in UNREAD},
        "composites": {k["kind"]: _bases(k["bases"]) for k in core["operand_kinds"]
                       if k["category"] == "Composite"},
        "enums": {k["kind"]: _enumerants(k) for k in core["operand_kinds"]
                  if k["category"] in ("ValueEnum", "BitEnum")},
        "masks": [k["kind"] for k in core["operand_kinds"] if k["category"] == "BitEnum"],
        "sets": {name: {i["opname"]: i["opcode"] for i in s["instructions"]}
                 for name, s in sets.items()},
    }


def _operands(instruction: dict[str, Any]) -> list[str]:
    return [_kind(o["kind"]) + o.get("quantifier", "") for o in instruction.get("operands", ())]


def _bases(kinds: list[str]) -> list[str]:
    return [_kind(k) for k in kinds]


def _kind(kind: str) -> str:
    return "Id" if kind in IDS else kind


def _enumerants(kind: dict[str, Any]) -> dict[str, list[Any]]:
    return {e["enumerant"]: [int(str(e["value"]), 0), *(_operands({"operands": e["parameters"]})
                                                        if "parameters" in e else ())]
            for e in kind["enumerants"] if not VENDORS.search(e["enumerant"])}


def read(folder: Path) -> dict[str, Any]:
    """The reduced form of the grammar published in a folder."""
    core, *sets = (json.loads((folder / f"{name}.grammar.json").read_text())
                   for name in ("spirv.core", *SETS.values()))
    return reduced(core, dict(zip(SETS, sets, strict=True)))


if __name__ == "__main__":
    text = json.dumps(read(HEADERS), separators=(",", ":"))
    VENDORED.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(VENDORED, VENDORED.stat().st_size, "bytes")
