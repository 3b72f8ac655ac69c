"""Plans of whole graphs: regions, views, the order of copies, recomputation, and rows that workers
keep."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

REGION_MEMBERS_MAX = row(
    "REGION_MEMBERS_MAX", 160, "values",
    "the largest region; a longer chain of ops becomes several kernels, so that compiling takes "
    "no longer",
    "chosen; the largest region of the zoo has 82, a butterfly of 7 complex numbers 134")
VIEWS_MAX = row(
    "VIEWS_MAX", 32, "views",
    "the most nested views that a reader looks through; a deeper one is copied, since each view "
    "adds to the work of finding a position", CHOSEN)
ACCESS_PATTERNS_KEPT = row(
    "ACCESS_PATTERNS_KEPT", 1024, "views",
    "left operands whose access pattern is remembered: finding it takes milliseconds", CHOSEN)
PRODUCTS_KEPT = row(
    "PRODUCTS_KEPT", 1024, "products",
    "products whose best tiles are remembered: networks repeat their layers", CHOSEN)
LATE_BYTES = row(
    "LATE_BYTES", 1 << 16, "bytes",
    "the smallest copy of inputs or weights that is made right before it is read",
    "training an LSTM over 64 steps of 32 rows, 128 wide, takes 6.4 times the memory of its output "
    "in place of 7.1 with 1 MiB; 4 KiB saves no more")
WAVES_MEMORY = row(
    "WAVES_MEMORY", 1.25, "times the memory",
    "how much more memory may be used so that more kernels of a GPU run in parallel",
    "chosen")
INSET_RUN = row(
    "INSET_RUN", 16, "elements",
    "the fewest contiguous elements of a part that is computed in place in a larger value",
    "chosen: a vector")
INSET_SHARE = row(
    "INSET_SHARE", 0.75, "share of the elements",
    "the least share of a padded or concatenated value that other kernels compute in place",
    "measured: a ShuffleNet, which concatenates equal parts of new and old values, takes 1.04 of "
    "the time at batch 32 if these are computed in place, too")
INTERLEAVED_MAX = row(
    "INTERLEAVED_MAX", 4, "values",
    "the most values that one kernel stores in turns, and the largest stride of loads that are "
    "shuffled out of whole vectors: the shuffles grow with its square",
    "chosen: pixels have three or four channels")
TAILS_MATTER = row(
    "TAILS_MATTER", 8, "vectors",
    "the shortest rows, with a part of a vector at their end, whose results may replace what they "
    "are computed from",
    "on Zen 4 with AVX-512, softmax of 128 x 10 takes 5.1 us in place and 1.6 elsewhere")
LONE_CYCLES = row(
    "LONE_CYCLES", 12000, "cycles of one worker between two barriers",
    "the least work from which on workers always share a loop; below it trials decide",
    "on Zen 4, an LSTM of 100 steps, one row and 128 units, two workers, its input product shared: "
    "on two dies 363 us in shared loops, 311 in lone ones; on one die 215 and 311")
LONE_ITERATIONS = row(
    "LONE_ITERATIONS", 8, "iterations",
    "the shortest loop that one worker runs by itself", CHOSEN)
NAME_LENGTH_MAX = row(
    "NAME_LENGTH_MAX", 48, "characters",
    "the length of layer and ops in the name of a kernel",
    "chosen: profilers cut off longer names")

# -- a memory limit: recomputation -----------------------------------------------------------------

RERUN_SEGMENTS = row(
    "RERUN_SEGMENTS", (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), "segments",
    "the numbers of segments that are tried for the forward pass; 1.5: one and a half", CHOSEN)
RERUN_PARTS = row(
    "RERUN_PARTS", (1.0, 0.75, 0.5, 0.25), "share of the regions",
    "the shares, the cheapest regions first, that are tried to run again", CHOSEN)
RERUN_TRIES_MAX = row(
    "RERUN_TRIES_MAX", 64, "regions",
    "the most dropped regions for which keeping them is tried", CHOSEN)
RERUN_PLACED_MAX = row(
    "RERUN_PLACED_MAX", 4, "choices",
    "choices whose arenas are laid out before a limit is called too small", CHOSEN)
RERUN_MARGIN = row(
    "RERUN_MARGIN", 64, "parts of the limit",
    "the part of the limit, as a divisor, that is subtracted if the arena was too large", CHOSEN)
RERUN_LISTED = row(
    "RERUN_LISTED", 3, "buffers", "the buffers that the error of a limit names", CHOSEN)
OWN_ROWS_MIN = row(
    "OWN_ROWS_MIN", 8, "rows",
    "the fewest rows of a product in a loop that workers share by rows, although each of them then "
    "reads the whole right operand",
    "on Zen 4, an LSTM of 32 steps, 8 rows and 64 units, two workers on two dies: 230 us become "
    "165; with 16 rows, 128 units and 1,000 steps 32 ms become 26, on one die 22.2 become 20.8")
OWN_ROWS_FEW = row(
    "OWN_ROWS_FEW", (16, 32), "rows",
    "the fewest and the most rows of a product outside of loops that workers share by rows; with "
    "fewer, each of them would wait for the right operand",
    "on Zen 4, mobilenet of one image takes 52.5 us on two threads in place of 56.2, and 87 on one")
OWN_ROWS_SHARE = row(
    "OWN_ROWS_SHARE", 0.25, "share of the L2 cache",
    "the largest right operand of such a product, which each worker reads whole", CHOSEN)
OWN_ROWS_COST = row(
    "OWN_ROWS_COST", 1.1, "ratio",
    "how much longer the tiles that divide these rows evenly may take", CHOSEN)
LIBRARY_BLOCK = row(
    "LIBRARY_BLOCK", (128, 512), "rows and columns",
    "the first block of a product by another library that the tuner tries", CHOSEN)
LIBRARY_WORK = row(
    "LIBRARY_WORK", 1 << 16, "multiply-adds",
    "the smallest product for which another library is tried: a call and the copies that it makes "
    "of its operands take longer than our kernel", CHOSEN)
LIBRARY_BLOCK_BYTES = row(
    "LIBRARY_BLOCK_BYTES", 1 << 18, "bytes",
    "the largest block that waits for its epilogue in a local array, on the stack of a worker",
    CHOSEN)

# -- products in blocks, as symmetric ones -------------------------------------------------------

SYMMETRIC_ROWS = row(
    "SYMMETRIC_ROWS", 256, "rows",
    "the fewest rows of a symmetric product that is computed in blocks",
    "on Zen 4, a step of Muon for 512 x 784: 53.9 ms become 45.5 with 512, 40.6 with 256 or 128; "
    "with 128 there are twice as many kernels")
SYMMETRIC_DEPTH = row(
    "SYMMETRIC_DEPTH", 128, "steps along k",
    "the least depth of such a product: blocks are copied, and joined again", CHOSEN)

# -- integer products without an instruction that multiplies and adds ------------------------------

INTEGER_REGISTERS = row(
    "INTEGER_REGISTERS", 1, "vector registers",
    "registers of a tile for products that are not yet added",
    "on Zen 4 at AVX2, 256 x 256 x 256 bytes 216 us to 200, with INTEGER_UNROLL; a quantized MLP "
    "of 32 rows 399 us to 365: LLVM spilled half of the sums")
INTEGER_UNROLL = row(
    "INTEGER_UNROLL", 2, "steps along k",
    "steps in one iteration of such a product: LLVM moves products of later steps before sums",
    "see INTEGER_REGISTERS; 4 steps take 385 us in that MLP")
