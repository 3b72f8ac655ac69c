import pytest
from tests.devices.test_cuda import fake  # noqa
from tests.devices import test_words as tw
from ztorch.dtypes import ALL
@pytest.mark.parametrize("d", ALL, ids=repr)
def test_w(d, fake):
    tw.test_every_opcode("cuda", d)
others=[f for n,f in vars(tw).items() if n.startswith("test_") and n!="test_every_opcode"]
@pytest.mark.parametrize("f", others, ids=lambda f:f.__name__)
def test_o(f, fake):
    import inspect
    print(inspect.signature(f))
    f("cuda")
