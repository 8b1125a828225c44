"""should_custom_ar() is traced by Dynamo in SGLang 0.5.7 to 0.5.15.post1: what its bytecode may touch, read off it.

test_torch.py lets Dynamo itself trace it, where there is a torch.
"""

import dis
import sys
import types
import unittest

import common
import standin

sys.path.insert(0, str(common.ROOT / "python"))
standin.install()

from sgl_pcie import communicator  # noqa: E402


def code_of(function):
    """Its code objects, inner ones too."""
    codes = [function.__code__]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return codes


class Traced(unittest.TestCase):
    # Of the tensor: what Dynamo knows as integers, booleans and constants. Of the communicator: its attributes.
    TENSOR = {"dtype", "is_contiguous", "numel", "element_size"}
    OWN = {"disabled", "_windows", "_stock", "should_custom_ar"}
    GLOBALS = {"_DTYPES"}

    def test_touches_only_attributes_and_integers(self):
        for code in code_of(communicator.Communicator.should_custom_ar):
            for step in dis.get_instructions(code):
                if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    self.assertIn(str(step.argval), self.TENSOR | self.OWN)
                elif step.opname == "LOAD_GLOBAL":
                    self.assertIn(str(step.argval), self.GLOBALS)
                self.assertFalse(
                    step.opname.startswith(
                        ("STORE_ATTR", "STORE_GLOBAL", "IMPORT", "SETUP", "RAISE", "YIELD", "LOAD_CLOSURE")
                    ),
                    "%s in should_custom_ar" % step.opname,
                )

    def test_needs_no_bookkeeping(self):
        code = communicator.Communicator.should_custom_ar.__code__
        self.assertEqual(code.co_freevars + code.co_cellvars, ())
        self.assertLessEqual(set(code.co_varnames), {"self", "inp", "size", "above", "upto"})
        self.assertIsInstance(communicator._DTYPES, tuple)

    def test_what_compiled_code_calls_is_an_operator(self):
        """Both kernels: the real one, and the one that only gives the shape."""
        for key in ("CompositeExplicitAutograd", "Meta"):
            self.assertIn(("all_reduce", key), standin.Library.operators)


if __name__ == "__main__":
    unittest.main()
