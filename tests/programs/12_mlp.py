"""What the tests of 12_mlp need besides what it declares (see tests/pages.py)."""
