"""Whatever the bytes, what comes out is taken by every provider, or nothing comes out."""

from __future__ import annotations

import asyncio
import io
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from agentcli.domain.images import facts_of, judge
from agentcli.domain.messages import ImagePart
from agentcli.tools.files.images import MAX_DECODED_BYTES, reencode_image, reencoded
from tests.support.histories import png
from tests.support.poisons import HOPELESS, IMAGES, moving, saved


@pytest.mark.slow
@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("name", IMAGES)
def test_a_poisoned_image_is_mended_or_given_up(name: str) -> None:
    better = reencoded(IMAGES[name])
    if name in HOPELESS:
        assert better is None
        return
    assert better is not None
    judgement = judge(better)
    assert judgement.image == better
    with Image.open(io.BytesIO(better.data)) as picture:
        picture.load()
        assert max(picture.size) <= 2_000


@pytest.mark.spec("HIS-8")
def test_the_first_picture_of_a_moving_one_is_kept_and_proportions_too() -> None:
    better = reencoded(ImagePart("image/gif", moving("GIF")))
    assert better is not None
    with Image.open(io.BytesIO(better.data)) as picture:
        assert picture.convert("RGB").getpixel((3, 3)) == (255, 0, 0)
    wide = reencoded(IMAGES["photo of 108 megapixels"])
    assert wide is not None
    facts = facts_of(wide.data)
    assert (facts.width, facts.height) == (2_000, 1_500)


def test_a_photo_is_turned_as_the_camera_says() -> None:
    picture = Image.new("RGB", (3_000, 1_000))
    exif = picture.getexif()
    exif[0x0112] = 6
    better = reencoded(ImagePart("image/jpeg", saved(picture, "JPEG", exif=exif)))
    assert better is not None
    facts = facts_of(better.data)
    assert facts.height > facts.width


@pytest.mark.slow
def test_what_is_transparent_becomes_white_in_a_photo() -> None:
    noise = Image.effect_noise((1_900, 1_900), 90)
    picture = Image.merge("RGBA", (noise, noise.rotate(90), noise.rotate(180), noise))
    data = saved(picture, "PNG")
    assert len(data) > 5_000_000
    better = reencoded(ImagePart("image/png", data))
    assert better is not None
    assert better.media_type == "image/jpeg"


@pytest.mark.spec("SEC-13")
def test_a_bomb_is_judged_by_its_header_and_never_unpacked() -> None:
    bomb = png(60_000, 4_000)
    assert len(bomb) < 2_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reencoded(ImagePart("image/png", bomb)) is None
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MAX_DECODED_BYTES


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_a_progressive_photo_costs_what_its_whole_size_costs() -> None:
    small = saved(Image.new("RGB", (4_000, 3_000)), "JPEG", progressive=True)
    assert reencoded(ImagePart("image/jpeg", small)) is not None
    large = saved(Image.new("RGB", (7_000, 6_000)), "JPEG", progressive=True)
    assert reencoded(ImagePart("image/jpeg", large)) is None


def scans(edge: int) -> bytes:
    """A JPEG whose colours come one after another: decoders hold all of it at its whole size."""
    plain = saved(Image.new("RGB", (16, 16), (128, 128, 128)), "JPEG", subsampling=0)
    head, _, _ = plain.partition(b"\xff\xda")
    at = head.index(b"\xff\xc0") + 5
    head = head[:at] + struct.pack(">HH", edge, edge) + head[at + 4 :]
    blocks = (edge // 8) ** 2
    for number, tables, data in (
        (1, 0, b"\x28\xa2\x8a" * (blocks // 4)),
        (2, 17, b""),
        (3, 17, b""),
    ):
        head += b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, number, tables, 0, 63, 0)
        head += data or bytes(blocks // 2)
    return head + b"\xff\xd9"


def icon(edge: int) -> bytes:
    """One that says it is small, of a picture that is not."""
    inner = saved(Image.new("RGBA", (edge, edge)), "PNG")
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner


BOMBS: dict[str, Callable[[], bytes]] = {
    "RGBA": lambda: saved(Image.new("RGBA", (6_300, 6_300)), "PNG"),
    "WebP": lambda: saved(Image.new("RGBA", (6_000, 6_000)), "WEBP"),
    "thin": lambda: saved(Image.new("RGBA", (39_000_000, 1)), "PNG"),
    "scans": lambda: scans(14_000),
    "icon": lambda: icon(9_000),
    "float": lambda: saved(
        Image.new("F", (6_300, 6_300)), "TIFF", compression="tiff_adobe_deflate"
    ),
}
_IN_A_PROCESS = """
import asyncio, json, sys
from pathlib import Path
from agentcli.domain.messages import ImagePart
from agentcli.tools.files.images import reencode_image
from tests.support.memory import children_peak_kib, peak_kib
better = asyncio.run(reencode_image(ImagePart("image/png", Path(sys.argv[1]).read_bytes())))
kind = "" if better == "" else better.media_type
print(json.dumps([peak_kib(), children_peak_kib(), kind]))
"""


def in_a_process(place: Path, data: bytes) -> tuple[int, str]:
    """The most that was held, in KiB, and what came of it."""
    (place / "image").write_bytes(data)
    command = [sys.executable, "-c", _IN_A_PROCESS, str(place / "image")]
    done = subprocess.run(command, capture_output=True, check=True)
    own, other, kind = json.loads(done.stdout)
    return max(own, other), kind


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel bounds no memory elsewhere")
@pytest.mark.parametrize("name", BOMBS)
def test_what_no_header_says_is_bounded_by_a_process(tmp_path: Path, name: str) -> None:
    peak, kind = in_a_process(tmp_path, BOMBS[name]())
    assert peak < 300 * 1024
    assert kind in {"", "image/jpeg", "image/png"}


@pytest.mark.slow
@pytest.mark.spec("HIS-8", "SEC-13")
def test_a_large_screenshot_and_a_photo_are_made_to_fit_in_the_process(tmp_path: Path) -> None:
    shot = saved(Image.new("RGBA", (5_120, 2_880)), "PNG")
    assert in_a_process(tmp_path, shot)[1] == "image/png"
    photo = saved(Image.new("RGB", (6_000, 4_000)), "JPEG")
    assert in_a_process(tmp_path, photo)[1] == "image/jpeg"


def test_16_bit_greys_are_scaled() -> None:
    better = reencoded(ImagePart("image/png", saved(Image.new("I;16", (2_500, 10), 65_535), "PNG")))
    assert better is not None
    with Image.open(io.BytesIO(better.data)) as picture:
        assert picture.getextrema() == (255, 255)


@pytest.mark.slow
def test_the_loop_goes_on_while_an_image_is_decoded() -> None:
    async def main() -> int:
        ticks = 0
        task = asyncio.create_task(reencode_image(IMAGES["10,000 px square"]))
        while not task.done():
            await asyncio.sleep(0)
            ticks += 1
        assert task.result() is not None
        return ticks

    assert asyncio.run(main()) > 3


SOUND = [png(9, 9), *(IMAGES[name].data for name in ("JPEG as PNG", "moving GIF", "moving WebP"))]


@pytest.mark.spec("HIS-8", "SEC-13")
@settings(max_examples=80, deadline=None)
@given(st.sampled_from(SOUND), st.integers(0, 400), st.binary(max_size=6), st.booleans())
def test_damaged_bytes_never_raise(data: bytes, place: int, noise: bytes, cut: bool) -> None:
    broken = data[:place] + noise + (b"" if cut else data[place + len(noise) :])
    judge(ImagePart("image/png", broken))
    better = reencoded(ImagePart("image/png", broken))
    assert better is None or judge(better).image == better
