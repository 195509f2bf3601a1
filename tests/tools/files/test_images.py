"""Whatever the bytes, what comes out is taken by every provider, or nothing comes out."""

from __future__ import annotations

import asyncio
import io
import resource

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
