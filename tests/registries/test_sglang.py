"""What SGLang 0.5.23 registers, and how its reader fails when SGLang writes it in another way."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from bellwether.errors import RegistryError
from bellwether.registries import sglang
from bellwether.registries.sources import read_files, read_sources
from bellwether.registries.values import Architecture, Entry
from support import ROOT, package

TOOL = "sglang/srt/function_call/function_call_parser.py"


@functools.cache
def files() -> dict[str, str]:
    """The registry files of the pinned wheel."""
    source = read_sources(ROOT)["sglang"]
    return read_files(source, package(source.package))


def test_how_many_parsers_are_registered():
    """44 tool parsers by 40 classes, 36 reasoning parsers by 27."""
    parts = [entry for entry in sglang.parts(files()) if entry.kind in ("tool", "reasoning")]
    assert Counter(entry.kind for entry in parts) == {"tool": 44, "reasoning": 36}
    classes = {(entry.kind, entry.module, entry.cls) for entry in parts}
    assert Counter(kind for kind, _, _ in classes) == {"tool": 40, "reasoning": 27}


@pytest.mark.parametrize(
    "known",
    [
        "tool qwen sglang.srt.function_call.qwen25_detector Qwen25Detector",
        "tool qwen25 sglang.srt.function_call.qwen25_detector Qwen25Detector",
        "tool hermes sglang.srt.function_call.hermes_detector HermesDetector",
        "tool kimi_k2 sglang.srt.function_call.kimik2_detector KimiK2Detector",
        "tool gpt-oss sglang.srt.function_call.gpt_oss_detector GptOssDetector",
        "tool response_template sglang.srt.parser.response_template ResponseTemplateToolDetector",
        "reasoning qwen3 sglang.srt.parser.reasoning_parser Qwen3Detector",
        "reasoning deepseek-r1 sglang.srt.parser.reasoning_parser DeepSeekR1Detector",
        "reasoning kimi_k3 sglang.srt.parser.reasoning_parser KimiK3Detector",
    ],
)
def test_names_and_what_implements_them(known):
    """The module is where the class is imported from, or the file itself."""
    assert Entry(*known.split()) in sglang.parts(files())


def test_renderers_are_what_a_model_can_get():
    """Read by hand from the choice by model: five encodings besides the template, four of them by code of SGLang's."""
    renderers = [entry for entry in sglang.parts(files()) if entry.kind == "renderer"]
    assert {entry.name: entry.module for entry in renderers} == {
        "hf": "transformers",
        "dsv4": "sglang.srt.parser.deepseek_recipe_renderer",
        "dsv41": "sglang.srt.parser.deepseek_recipe_renderer",
        "dsv32": "sglang.srt.entrypoints.openai",
        "inkling": "sglang.srt.parser.inkling_renderer",
        "kimi_k3": "transformers",
    }


def test_tokenizers_are_transformers_and_modules_called_so():
    """`patch_tokenizer` and the like stand in other folders, and are no tokenizers."""
    tokenizers = [entry for entry in sglang.parts(files()) if entry.kind == "tokenizer"]
    assert tokenizers == [
        Entry("tokenizer", "hf", "transformers", "AutoTokenizer"),
        Entry("tokenizer", "inkling", "sglang.srt.parser.inkling_tokenizer", "(module)"),
        Entry("tokenizer", "tiktoken", "sglang.srt.tokenizer.tiktoken_tokenizer", "TiktokenTokenizer"),
    ]


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        (sglang.ENCODING, "def resolve_chat_encoding_spec", "def choose", "0 functions resolve_chat_encoding_spec"),
        (sglang.ENCODING, 'return "dsv32"', "return arch", "is no literal"),
        (sglang.ENCODING, "    return None\n", '    return "hf"\n', "something else than names"),
        (sglang.ENCODING, 'spec == "inkling":', 'spec == "inked":', "inked is encoded and never chosen"),
        (sglang.ENCODING, "parser.inkling_renderer", "parser.other", "inkling_renderer.py is a renderer no model gets"),
        (sglang.LOADS, "AutoTokenizer", "Loader", "loads no AutoTokenizer"),
    ],
)
def test_renderers_and_tokenizers_written_in_another_way_are_an_error(path, old, new, told):
    """What is chosen and what there is have to agree; half of them is never returned."""
    changed = files() | {path: files()[path].replace(old, new)}
    assert changed != files()
    with pytest.raises(RegistryError, match=told):
        sglang.parts(changed)


def test_a_package_without_tokenizer_modules_is_an_error():
    """They may have moved to another folder."""
    held = {path: text for path, text in files().items() if not path.endswith("_tokenizer.py")}
    with pytest.raises(RegistryError, match="no module of SGLang is called"):
        sglang.parts(held)


def test_architectures_the_models_announce():
    """290 classes, one or several per module, of those directly in the models' folder."""
    found = sglang.architectures(files())
    assert len(found) == 290
    assert Architecture("Qwen3ForCausalLM", "unsorted") in found
    assert Architecture("NemotronHPuzzleForCausalLM", "unsorted") in found, "the second of its module's list"


def test_a_wheel_without_a_commit_says_none():
    """SGLang's wheel is built outside Git."""
    assert sglang.commit(files()) is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"hermes": HermesDetector,\n', "", "differ in hermes"),
        ('"hermes": HermesDetector', '"hermes": detectors.Hermes', "no class known there"),
        ('"hermes": HermesDetector', '"hermes": UnknownDetector', "no class known there"),
        ("ToolCallParserEnum: Dict", "Parsers: Dict", "assigns ToolCallParserEnum 0 times"),
        ("class FunctionCallParser:", "class CallParser:", "has 0 classes FunctionCallParser"),
    ],
)
def test_parsers_written_in_another_way_are_an_error(old, new, told):
    """A name in one of the two places only, a class from nowhere, another name: none gives a shorter list."""
    changed = files() | {TOOL: files()[TOOL].replace(old, new)}
    assert changed != files()
    with pytest.raises(RegistryError, match=told):
        sglang.parts(changed)


def test_a_name_that_only_the_dict_has_is_an_error():
    """The command line would refuse it."""
    path = sglang.PARTS["tool"][3]
    changed = files() | {path: files()[path].replace('    "hermes",\n', "")}
    with pytest.raises(RegistryError, match="differ in hermes"):
        sglang.parts(changed)


@pytest.mark.parametrize(
    "text",
    [
        "EntryClass = models()",
        "EntryClass = []",
        'EntryClass = ["AForCausalLM"]',
        "EntryClass = A\nEntryClass = B",
        "if x:\n    EntryClass = A",
        "EntryClass = [A]\nEntryClass += [B]",
    ],
)
def test_a_model_announced_in_another_way_is_an_error(text):
    """SGLang asks for the attribute at run time, so all of these would announce models there."""
    with pytest.raises(RegistryError):
        sglang.architectures({f"{sglang.MODELS}a.py": text})


def test_modules_without_an_announcement_are_none():
    """Helpers stand in the same folder, and may speak of the name."""
    helper = {f"{sglang.MODELS}utils.py": "# EntryClass is set elsewhere\nx = 1\n"}
    assert sglang.architectures({**helper, f"{sglang.MODELS}a.py": "EntryClass = [A, B]"}) == [
        Architecture("A", "unsorted"),
        Architecture("B", "unsorted"),
    ]
    with pytest.raises(RegistryError, match="no module"):
        sglang.architectures(helper)


def test_an_architecture_announced_twice_is_an_error():
    """SGLang asserts the same at start."""
    twice = {f"{sglang.MODELS}{name}.py": "EntryClass = A" for name in "ab"}
    with pytest.raises(RegistryError, match="second time"):
        sglang.architectures(twice)
