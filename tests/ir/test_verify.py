"""Every rule of the IR: valid kernels pass, a violation is refused by name."""

from __future__ import annotations

import pytest

from tests.ir.kernels_as_text import body
from ztorch.errors import VerifyError
from ztorch.ir.verify import verify

GOOD = [
    "loop %1 = 0, 4, 1 serial {\n%2:i64 = shl %1, 2\n%3:f32x4 = load x[%2] align=16\n}",
    "%1:i64 = select true:bool, 4, 8\n%2:f32x4 = load x[%1] align=16",
    "%1:i64 = select true:bool, 8, 6\n%2:f32x2 = load x[%1] align=8",
    "%1:i64 = sub 8, 4\n%2:f32x4 = load x[%1] align=16",
    "%1:f32 = load x[0 + 15]\nstore y[0], %1",
    "%1:f32x16 = load x[0] align=64",
    "%1:f32x4 = load x[15] mask true:boolx4",
    "loop %1 = 0, 16, 4 serial {\n%2:f32x4 = load x[%1 + 4] align=16\n}",
    "loop %1 = 0, 4, 1 serial {\n%2:i64 = mul %1, 4\n%3:f32x4 = load x[%2] align=16\n}",
    "if true:bool {\nset %100, 0.0\n} else {\nset %100, 1.0\n}\n%1:f32 = get %100",
    """set %100, 0.0
    loop %1 = 0, 4, 1 serial {
      %2:f32 = get %100
      set %100, %2
    }
    %3:f32 = get %100""",
    "loop %1 = 0, 4, 1 parallel {\nset %100, 0.0\n%2:f32 = get %100\n}",
    "loop %1 = 0, 4, 1 block {\nstore s[%1], 0.0:f32\nbarrier\n}",
    "loop %1 = 0, 4, 1 grid {\nloop %2 = 0, 4, 1 grid axis=1 {\nbarrier\n}\n}",
    "%1:i64 = grid_id axis=0\n%2:bool = lt %1, 4:i64\nif %2 {\nbarrier\n}",
    "%1:f32 = load s[0]\n%2:bool = lt %1, 0.0:f32\nif %2 {\nbarrier\n}",
    "%1:i64x4 = iota\n%2:f32x4 = gather x[%1]\nscatter y[%1], %2",
    "%1:i32 = raw_cast 1.0:f32\n%2:i32 = raw_div %1, 3\n%3:i32 = raw_rem %2, 3",
    "%1:f32 = extract 1.0:f32x4 lane=3\n%2:f32 = extract 1.0:f32x4 lane=0",
    "%1:f32x4 = shuffle 1.0:f32x2, 2.0:f32x2 perm=(0, 3, 2, 1)",
    "%1:i64 = grid_id axis=2\n%2:i64 = block_id axis=0",
    "%1:f32 = load x[1 - 1]\n%2:f32 = shuffle_xor %1 mask=127",
    "%1:f32 = cast 1:u8\n%2:i32 = bitcast %1\n%3:bool = cast %2",
]


def test_well_formed() -> None:
    for text in GOOD:
        verify(body(text))


BAD = [
    # scopes
    ("loop %1 = 0, 4, 1 serial {\n%2:f32 = load x[%1]\n}\nstore y[0], %2", "%2 is used outside"),
    ("loop %1 = 0, 4, 1 serial {\n}\nstore y[%1], 0.0:f32", "%1 is used outside"),
    ("if true:bool {\n%1:f32 = load x[0]\n} else {\nstore y[0], %1\n}", "%1 is used outside"),
    # variables
    ("%1:f32 = get %100", "%100 may not have been set"),
    ("if true:bool {\nset %100, 0.0\n}\n%1:f32 = get %100", "may not have been set"),
    ("loop %1 = 0, 4, 1 serial {\nset %100, 0.0\n}\n%2:f32 = get %100", "may not have been set"),
    ("set %100, 0.0\nloop %1 = 0, 4, 1 parallel {\n%2:f32 = get %100\nset %100, %2\n}",
     "may not have been set"),
    ("set %100, 0.0\nloop %1 = 0, 4, 1 grid {\nset %100, 1.0\n}\n%2:f32 = get %100",
     "may not have been set"),
    ("set %100, 0:i32", "f32 does not match i32"),
    ("set %101, 0.0:f32", "4 lanes do not match 1"),
    ("set %100, 0.0\n%1:f64 = get %100", "f64 does not match f32"),
    ("loop %1 = 0, 4, 1 serial {\nset %1, 3:i64\n}", "operand 0 is a counter, not a variable"),
    ("%1:f32 = add %100, 1.0", "operand 0 is a variable, not a value"),
    # dtypes and lanes
    ("%1:f32 = add 1.0, 1.0:f64", "f32 does not match f64"),
    ("%1:f32x4 = add 1.0, 1.0:f32", "1 lanes do not match 4"),
    ("%1:f32 = and 1.0, 1.0", "is not defined on f32"),
    ("%1:bool = add true, true", "is not defined on bool"),
    ("%1:f32 = lt 1.0, 1.0", "gives bool, not f32"),
    ("%1:f32 = select 1.0, 1.0, 1.0", "chooses by bool"),
    ("%1:f64 = bitcast 1.0:f32", "the sizes differ"),
    ("%1:bool = bitcast 1:u8", "is not defined on bool"),
    ("%1:f32x2000 = add 1.0, 1.0", "lanes"),
    ("%1:f32x4 = splat 1.0:f32x2", "1 lane here"),
    ("%1:f32 = splat 1.0:f32", "more lanes"),
    ("%1:f32 = extract 1.0:f32 lane=0", "a lane out of several"),
    ("%1:f32 = extract 1.0:f32x4 lane=4", "lane=4 is not possible"),
    ("%1:f32 = join 1.0:f32, 1.0, 1.0, 1.0", "as many lanes as it takes"),
    ("%1:f32x4 = join 1.0:f32, 1.0:f32, 1.0:f32", "as many lanes as it takes"),
    ("%1:f32x2 = join 1.0:f32", "takes 2 operands, not 1"),
    ("%1:f32x2 = shuffle 1.0:f32x2, 1.0:f32x2 perm=(0, 4)", "is not possible"),
    ("%1:f32x3 = shuffle 1.0:f32x2, 1.0:f32x2 perm=(0, 1)", "as many lanes as perm"),
    ("%1:f32 = shuffle 1.0:f32x2, 1.0:f32x2 perm=(0)", "use extract"),
    ("%1:i64 = iota", "across more than one lane"),
    ("%1:f32x4 = iota", "is not defined on f32"),
    ("%1:i32 = grid_id axis=0", "this kernel counts in i64"),
    ("%1:i64 = grid_id axis=3", "axis=3 is not possible"),
    ("%1:i64 = grid_id", r"lacks the attributes \['axis'\]"),
    ("%1:f32 = add 1.0, 1.0 fast=true", "has no attribute 'fast'"),
    ("%1:f32 = add 1.0", "takes 2 operands, not 1"),
    ("%1:f32 = store y[0], 1.0", "defines a token, not a value"),
    ("add 1.0:f32, 1.0:f32", "defines a value, not a token"),
    # attributes at their limits
    ("%1:f32 = load x[0] align=128", "align=128 is not possible"),
    ("%1:f32 = load x[0] align=-4", "align=-4 is not possible"),
    ("%1:f32 = extract 1.0:f32x4 lane=-1", "lane=-1 is not possible"),
    ("%1:f32 = extract 1.0:f32x4 lane=true", "lane=True is not possible"),
    ("%1:f32x2 = shuffle 1.0:f32x2, 1.0:f32x2 perm=1", "perm=1 is not possible"),
    ("%1:i64 = grid_id axis=-1", "axis=-1 is not possible"),
    ("%1:i64 = block_id axis=true", "axis=True is not possible"),
    ("%1:f32 = bitcast 1:i64", "the sizes differ"),
    ("%1:u16 = bitcast 1:i32", "the sizes differ"),
    ("%1:f32 = raw_cast 1.0:f32", "gives an integer, not f32"),
    ("%1:bool = raw_cast 1.0:f32", "gives an integer, not bool"),
    ("%1:i32 = raw_cast 1:i32", "is not defined on i32"),
    ("%1:f32 = raw_div 1.0, 1.0", "is not defined on f32"),
    # memory
    ("%1:f32 = load w[0]", "mem='w' is not possible"),
    ("%1:f32 = load y[0]", "y is write-only"),
    ("store x[0], 1.0:f32", "x is read-only"),
    ("%1:f32 = load x[16]", r"x\[16\] is outside its 16"),
    ("%1:f32 = load x[0 - 1]", r"x\[-1\] is outside"),
    ("%1:f32x4 = load x[10 + 3]", r"x\[16\] is outside"),
    ("%1:f32x4 = load x[16] mask true:boolx4", r"x\[16\] is outside"),
    ("%1:f32 = load x[0:i32]", "the index is i32, but this kernel counts in i64"),
    ("%1:i32 = cast 0:i64\nprefetch x[%1] cache=1", "the index is i32, but this kernel counts in i64"),
    ("%1:f32x4 = load x[0:i64x4]", "1 lane here, not 4"),
    ("%1:f32x4 = gather x[0:i64x2]", "2 indices for 4 lanes"),
    ("%1:f32 = gather x[0:i64]", "1 indices for 1 lanes"),
    ("scatter y[0:i64x4], 1.0:f32x8", "4 indices for 8 lanes"),
    ("%1:f32x4 = load x[0] mask true:boolx2", "a mask of 2 lanes for 4"),
    ("%1:f32 = load x[0] mask 1:u8", "a mask is bool"),
    ("%1:f32 = load x[0] align=12", "align=12 is not possible"),
    ("%1:f32x4 = load x[1] align=16", "not known to be aligned to 16"),
    ("%1:i64 = select true:bool, 8, 6\n%2:f32x4 = load x[%1] align=16", "not known to be aligned"),
    ("%1:i64 = select true:bool, 6, 8\n%2:f32x4 = load x[%1] align=16", "not known to be aligned"),
    ("%1:i64 = shl 1, 1\n%2:f32x4 = load x[%1] align=16", "not known to be aligned"),
    ("%1:i64 = add 8, 2\n%2:f32x4 = load x[%1] align=16", "not known to be aligned"),
    ("loop %1 = 1, 9, 4 serial {\n%2:f32x4 = load x[%1] align=16\n}", "not known to be aligned"),
    ("loop %1 = 0, 9, 4 serial {\n%2:f32x4 = load x[%1 + 2] align=16\n}", "not known to be aligned"),
    # structure
    ("loop %1 = 0, 4, 0 serial {\n}", "the step is not a positive constant"),
    ("loop %1 = 0, 4, -1 serial {\n}", "the step is not a positive constant"),
    ("%1:i64 = cast 4:i32\nloop %2 = 0, 4, %1 serial {\n}", "the step is not a positive constant"),
    ("loop %1 = 0, 4:i32, 1 serial {\n}", "the index is i32"),
    ("loop %1 = 0, 4, 1 sideways {\n}", "kind='sideways' is not possible"),
    ("loop %1 = 0, 4, 1 serial {\nloop %2 = 0, 4, 1 parallel {\n}\n}", "at the top level"),
    ("if true:bool {\nloop %2 = 0, 4, 1 parallel {\n}\n}", "at the top level"),
    ("loop %1 = 0, 4, 1 grid {\nloop %2 = 0, 4, 1 grid {\n}\n}", "another grid loop over axis 0"),
    ("if true:boolx4 {\n}", "1 lane here, not 4"),
    ("if 1:i32 {\n}", "is not defined on i32"),
    ("loop %1 = 0, 4, 1 serial {\nif true:bool {\nwhile %1, true:bool rare=false\n}\n}", "not directly in its loop"),
    ("loop %1 = 0, 4, 1 serial {\nloop %2 = 0, 4, 1 serial {\nwhile %1, true:bool rare=false\n}\n}",
     "not directly in its loop"),
    ("loop %1 = 0, 4, 1 parallel {\nwhile %1, true:bool rare=false\n}", "whose trips may run at once"),
    ("loop %1 = 0, 4, 1 serial {\nwhile %1, 1:i32 rare=false\n}", "is not defined on i32"),
    ("%1:i64 = cast 2:i32\nloop %2 = 0, 4, 1 serial {\nwhile %1, true:bool rare=false\n}", "is a value, not a counter"),
    # threads
    ("%1:i64 = block_id axis=0\nloop %2 = 0, 9, 1 serial {\n%3:bool = lt %2, %1\nwhile %2, %3 rare=false\nbarrier\n}",
     "may part at the loop"),
    ("%1:i64 = block_id axis=0\n%2:bool = lt %1, 4:i64\nif %2 {\nbarrier\n}", "may part at the if"),
    ("%1:i64 = block_id axis=0\nloop %2 = 0, %1, 1 serial {\nbarrier\n}", "may part at the loop"),
    ("""%1:i64 = block_id axis=0
     %2:f32 = load x[%1]
     %3:bool = lt %2, 0.0:f32
     if %3 {
       barrier
     }""", "may part at the if"),
    ("""%1:i64 = block_id axis=0
     %2:bool = lt %1, 4:i64
     set %100, 0.0
     if %2 {
       set %100, 1.0
     }
     %3:f32 = get %100
     %4:bool = lt %3, 1.0:f32
     if %4 {
       barrier
     }""", "may part at the if"),
    ("""%1:i64 = block_id axis=0
     %2:f32 = cast %1
     set %100, 0.0
     loop %3 = 0, 4, 1 serial {
       %4:f32 = get %100
       %5:bool = lt %4, 1.0:f32
       if %5 {
         barrier
       }
       set %100, %2
     }""", "may part at the if"),
    ("loop %1 = 0, 5, 1 block {\nbarrier\n}", "one trip for each thread"),
    ("loop %1 = 0, 4, 1 parallel {\nbarrier\n}", "CPU threads do not meet"),
    ("""%1:i64 = block_id axis=0
     %2:bool = lt %1, 4:i64
     if %2 {
       %3:f32 = shuffle_xor 1.0 mask=1
     }""", "may part at the if"),
    ("%1:f32 = shuffle_xor 1.0 mask=0", "mask=0 is not possible"),
    ("%1:f32 = shuffle_xor 1.0 mask=128", "mask=128 is not possible"),
    ("%1:f64 = shuffle_xor 1.0:f32 mask=1", "f64 does not match f32"),
]


def test_ill_formed() -> None:
    for text, rule in BAD:
        with pytest.raises(VerifyError, match=r"kernel k, instruction \d+ \(\w+\): .*" + rule):
            verify(body(text))
