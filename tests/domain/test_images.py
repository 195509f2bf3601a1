"""What an image is, from its headers alone; judged against a real decoder."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from agentcli.domain.images import MAX_EDGE_PX, MAX_IMAGE_BYTES, facts_of, judge, stub
from agentcli.domain.messages import ImagePart
from tests.support.histories import PNG, png
from tests.support.poisons import HOPELESS, IMAGES, jpeg, moving, saved

MODES = {"PNG": ("1", "L", "P", "RGB", "RGBA"), "JPEG": ("L", "RGB", "CMYK"), "GIF": ("L", "P")}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]), st.integers(1, 300), st.integers(1, 300))
def test_type_and_size_are_what_a_decoder_says(kind: str, width: int, height: int) -> None:
    for mode in MODES.get(kind, ("RGB", "RGBA")):
        for options in ({}, {"lossless": True}, {"progressive": True}):
            data = saved(Image.new(mode, (width, height)), kind, **options)
            facts = facts_of(data)
            assert (facts.width, facts.height, facts.fault) == (width, height, "")
            with Image.open(io.BytesIO(data)) as picture:
                assert Image.MIME[picture.format or ""] == facts.media_type
            assert not facts.is_animated


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_a_moving_image_is_known_as_one(kind: str) -> None:
    assert facts_of(moving(kind)).is_animated


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("data", [PNG, jpeg(), moving("GIF"), moving("WEBP")])
def test_an_image_cut_anywhere_is_never_taken_for_whole(data: bytes) -> None:
    for end in range(len(data) - 1):
        judgement = judge(ImagePart("image/png", data[:end]))
        assert judgement.image is None, end
        assert judgement.why


@pytest.mark.spec("HIS-8")
def test_every_poison_is_found_and_what_is_sound_is_not_touched() -> None:
    for name, image in IMAGES.items():
        judgement = judge(image)
        if judgement.image is None:
            assert judgement.why, name
            assert judgement.repairable or name in HOPELESS, name
        else:
            assert name in {"JPEG as PNG", "PNG as JPEG", "WebP as PNG", "still GIF"}
            assert judgement.image.data is image.data
            assert judgement.image.media_type == facts_of(image.data).media_type
    for data in (PNG, jpeg(), png(MAX_EDGE_PX, 2)):
        image = ImagePart(facts_of(data).media_type, data)
        assert judge(image).image is image


def test_a_jpeg_with_padding_extra_bytes_and_a_thumbnail_is_sound() -> None:
    plain = jpeg()
    thumbnail = b"Exif\0\0" + jpeg(8, 8)
    data = plain[:2] + b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2) + thumbnail
    data += b"\xff\xff" + plain[2:] + b"trailing bytes of a camera"
    facts = facts_of(data)
    assert (facts.width, facts.height, facts.fault) == (40, 30, "")


@pytest.mark.spec("HIS-8")
def test_the_limits_are_those_of_the_strictest_provider() -> None:
    assert judge(ImagePart("image/png", png(MAX_EDGE_PX + 1, 2))).image is None
    assert judge(ImagePart("image/png", png(2, MAX_EDGE_PX + 1))).image is None
    heavy = png(1_900, 2_000, noise=True)
    assert len(heavy) > MAX_IMAGE_BYTES
    assert judge(ImagePart("image/png", heavy)).image is None


@pytest.mark.spec("HIS-8")
def test_a_stub_names_type_size_and_reason_in_one_clean_line() -> None:
    text = stub(ImagePart("image/png", PNG), "no images here").text
    assert text == f"[image left out: image/png, 2x2 px, {len(PNG)} bytes; no images here]"
    odd = stub(ImagePart('x"\n\ud800\x1b' + "y" * 999, b"?" * 2_500_000), "why").text
    assert "2.5 MB" in odd
    assert "\n" not in odd
    assert odd.isprintable()
    assert len(odd) < 120


@pytest.mark.spec("SEC-13")
@settings(max_examples=200)
@given(
    st.sampled_from([b"", PNG[:8], b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBP"]), st.binary()
)
def test_any_bytes_get_an_answer(head: bytes, rest: bytes) -> None:
    judgement = judge(ImagePart("image/png", head + rest))
    assert judgement.image is not None or judgement.why
