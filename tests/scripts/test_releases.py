"""scripts/releases.py: a flag that is read wrong would be refused, or let through, for everyone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from releases import SNAPSHOT, Snapshot, version_key
from sglang_arguments import read_arguments

MANY = "\n".join(f'        parser.add_argument("--filler-{n}", type=int)' for n in range(100))
CALLS = f"""
LEVELS = ["low", "high"]
class ServerArgs:
    port: int = 30000
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--port", type=int, default=ServerArgs.port, help="a port")
        parser.add_argument("--tensor-size", "--tp-size", type=int)
        parser.add_argument("--level", choices=LEVELS + ["none"], default=None)
        parser.add_argument("--names", nargs="*", choices=list(Registry.keys()))
        parser.add_argument("--quiet", action="store_true")
        parser.add_argument("--old", action=DeprecatedAliasStoreAction, new_flag="--port", type=int)
{MANY}
    def other(self, parser):
        parser.add_argument("--not-the-servers")
"""
FIELDS = f"""
class Spec:
    port: A[int, "a port"] = 30000
    tp_size: A[int, Arg(help="size", aliases=["--tensor-size"])] = 1
    level: A[Optional[str], Arg(choices=LEVELS)] = None
    names: A[List[str] | None, Arg(help="n")] = None
    mode: A[Literal["a", "b"], "a mode"] = "a"
    quiet: A[bool, "no noise"] = False
    capacity: A[int, "large"] = 10 * 1000
    hidden: A[int, Arg(no_cli=True)] = 1
    plain: int = 1
    either: A[Optional[bool], Arg(action=argparse.BooleanOptionalAction)] = None
class ServerArgs:
    def add_cli_args(parser):
{MANY}
"""


def test_the_calls_of_the_first_family_are_read() -> None:
    """0.5.8 to 0.5.13 declare by parser.add_argument."""
    read = read_arguments({"srt/server_args.py": CALLS})
    assert read["port"] == {"kind": "value", "type": "int", "default": 30000}
    assert read["tensor-size"] == {"kind": "value", "type": "int", "aliases": ["tp-size"]}
    assert read["level"]["choices"] == ["low", "high", "none"]
    assert read["names"] == {"kind": "list", "type": "str", "choices": "open"}
    assert read["quiet"] == {"kind": "switch"}
    assert read["old"]["deprecated"]
    assert read["old"]["replaced_by"] == "--port"
    assert "not-the-servers" not in read


def test_the_fields_of_the_later_families_are_read() -> None:
    """0.5.14 and later declare by annotated fields, from 0.5.20 on in several files."""
    sources = {
        "srt/server_args.py": "",
        "srt/arg_groups/choices.py": 'LEVELS = ["low", "high"]',
        "srt/arg_groups/fields/spec.py": FIELDS,
    }
    read = read_arguments(sources)
    assert read["port"] == {"kind": "value", "type": "int", "default": 30000}
    assert read["tp-size"]["aliases"] == ["tensor-size"]
    assert read["level"]["choices"] == ["low", "high"]
    assert read["names"] == {"kind": "list", "type": "str"}
    assert read["mode"] == {"kind": "value", "type": "str", "choices": ["a", "b"], "default": "a"}
    assert read["quiet"] == {"kind": "switch"}
    assert read["capacity"]["default"] == 10_000
    assert read["either"] == {"kind": "switch", "aliases": ["no-either"]}
    assert not {"hidden", "plain"} & set(read)


def test_another_way_of_declaring_is_noticed() -> None:
    """A snapshot without the flags would let CI pass and refuse every sweep."""
    with pytest.raises(ValueError, match="another way"):
        read_arguments({"srt/server_args.py": "class ServerArgs:\n    port: int = 1\n"})


def test_the_snapshot_reads_back_as_it_was_written() -> None:
    """`make releases VERSION` rewrites the whole file from what it read."""
    assert Snapshot.read(SNAPSHOT).text() == SNAPSHOT.read_text(encoding="utf-8")
    assert version_key("0.5.12") < version_key("0.5.12.post1") < version_key("0.5.13")
