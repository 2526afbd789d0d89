"""The list of embedded models, as it ships."""

import re

from fugu_cli.local.manifest import Model, WheelPart, Wheels, embedded_models, parse_manifest


def test_the_three_models_ship_with_the_sizes_and_hashes_that_were_verified() -> None:
    assert [(model.name, model.size, model.sha256[:12]) for model in embedded_models()] == [
        ("qwen2.5-coder-1.5b", 1_117_320_768, "cc324af070c2"),
        ("qwen2.5-coder-0.5b", 491_400_064, "1d9614638d18"),
        ("smollm2-135m", 98_362_432, "b179c9523d0e"),
    ]


def test_every_model_names_its_licence_its_maker_and_two_places_to_get_it() -> None:
    for model in embedded_models():
        assert model.licence == "Apache-2.0"
        assert model.upstream.startswith("https://huggingface.co/")
        assert model.hub is not None and model.hub.file.endswith(".gguf")
        assert model.wheels is not None and model.wheels.parts >= 1
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert model.filename == f"{model.name}.gguf"


def test_parts_are_counted_from_one_and_numbers_in_members_keep_their_zeros() -> None:
    wheels = Wheels("some-part{part}", "0.2.0", "some_part{part}/data/part{part:02d}.bin", 2)
    assert wheels.listed() == (
        WheelPart("some-part1==0.2.0", "some_part1/data/part01.bin"),
        WheelPart("some-part2==0.2.0", "some_part2/data/part02.bin"),
    )


def test_a_model_may_have_no_source_but_a_folder_of_the_user() -> None:
    text = '[[models]]\nname="a"\ntitle="A"\nlicence="MIT"\nupstream="u"\nsize=3\nsha256="00"\ncontext=8\n'
    assert parse_manifest(text) == (Model("a", "A", "MIT", "u", 3, "00", 8, None, None),)
