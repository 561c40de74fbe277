"""Copies between KV pools, which SGLang up to 0.5.10 imports by name and uses with HiCache only."""

from sgl_kernel import __getattr__  # noqa: F401
