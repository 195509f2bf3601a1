"""Which files well-known programs write and destroy."""

from __future__ import annotations

import pytest

from agentcli.policy.shell_operands import Operands, operands_of


def of(text: str) -> Operands:
    return operands_of(tuple(None if word == "?" else word for word in text.split()))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("tee -a a b", ("a", "b")), ("touch -d now a", ("a",)), ("touch -- -a", ("-a",)),
        ("cp x y z", ("z", "z/x", "z/y")), ("cp -t d x", ("d", "d/x")), ("cp ? z", ("z",)),
        ("cp --target-directory=d x", ("d", "d/x")), ("mv x y", ("y", "y/x", "x")),
        ("ln -s x y", ("y", "y/x")), ("dd if=a of=b", ("b",)), ("sed -i s/a/b/ f", ("s/a/b/", "f")),
        ("sed s/a/b/ f", ()), ("perl -pi -e x f", ("f",)), ("chmod 600 a", ("a",)),
        ("chmod --reference=r a", ("a",)), ("sort -o f x", ("f",)), ("sort -of x", ("f",)),
        ("curl --output=f u", ("f",)), ("gcc -o f a.c", ("f",)), ("cat a", ()), ("/usr/bin/tee a", ("a",)),
        ("git config a b", ("./.git/config",)), ("git -C d config a b", ("./d/.git/config",)),
        ("git config --global a b", ("~/.gitconfig",)), ("git config -f x a b", ("x",)),
        ("git config --get a", ()), ("git config a", ()), ("git config --unset a", ("./.git/config",)),
        ("wget -O f u", ("f",)), ("wget -P d u", ("d",)), ("curl --output-dir d -O u", ("d", "u")),
        ("tar xf a.tar -C d", ("d",)), ("unzip -d d a.zip", ("d",)), ("curl -s u", ()),
        ("rm a ?", ("a", None)), ("find . -fprint f", ("f",)), ("? a", ()), ("", ()),
    ],
)  # fmt: skip
def test_what_is_written(command: str, written: tuple[str | None, ...]) -> None:
    assert of(command).written == written


@pytest.mark.spec("SEC-14")
@pytest.mark.parametrize(
    ("command", "destroyed", "recursive"),
    [
        ("rm -rf a b", ("a", "b"), True), ("rm a", (), False), ("rm -f a", ("a",), False),
        ("rm -- -r", (), False), ("rm --recursive ?", (None,), True), ("rm --recurs a", ("a",), True),
        ("chmod -R 0 a", ("a",), True), ("chmod 0 a", (), False), ("mv a b", ("a",), False),
        ("find a b -delete", ("a", "b"), True), ("find -delete", (".",), True),
        ("find a -name x -delete", (), True), ("find / -name x -delete", ("/",), True),
        ("find a -name * -delete", ("a",), True), ("find a -exec /bin/rm {} ;", ("a",), True),
        ("find a -name x -o -delete", ("a",), True), ("find a -name x", (), False),
        ("git clean -fd", ("./.",), True), ("git clean -n -f", (), False), ("git clean", (), False),
        ("git clean -f sub", ("./sub",), True), ("git rm -r .", ("./.",), True),
        ("git rm x", (), False), ("rsync -a --delete x/ y", ("y",), True), ("? -rf a", ("a",), True),
        ("? a", (), False), ("mkfs.ext4 /dev/sda", ("/dev/sda",), True), ("shred -n 3 a", ("a",), False),
    ],
)  # fmt: skip
def test_what_is_destroyed(
    command: str, destroyed: tuple[str | None, ...], *, recursive: bool
) -> None:
    found = of(command)
    assert (found.destroyed, found.is_recursive) == (destroyed, recursive)
