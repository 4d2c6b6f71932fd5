"""What vLLM 0.33.0 registers, and how its reader fails when vLLM writes it in another way."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from bellwether.errors import RegistryError
from bellwether.registries import vllm
from bellwether.registries.sources import read_files, read_sources
from bellwether.registries.values import Architecture, Entry, Named
from support import ROOT, package


@functools.cache
def files() -> dict[str, str]:
    """The registry files of the pinned source archive."""
    source = read_sources(ROOT)["vllm"]
    return read_files(source, package(source.package))


def test_how_many_parts_are_registered():
    """58 tool parsers, 42 reasoning parsers, 11 renderers and 10 tokenizers, by 53, 39, 9 and 7 classes."""
    parts = vllm.parts(files())
    assert Counter(entry.kind for entry in parts) == {"tool": 58, "reasoning": 42, "renderer": 11, "tokenizer": 10}
    classes = {(entry.kind, entry.module, entry.cls) for entry in parts}
    assert Counter(kind for kind, _, _ in classes) == {"tool": 53, "reasoning": 39, "renderer": 9, "tokenizer": 7}


@pytest.mark.parametrize(
    "known",
    [
        "tool hermes vllm.tool_parsers.hermes_tool_parser Hermes2ProToolParser",
        "tool deepseek_v3 vllm.tool_parsers.deepseekv3_tool_parser DeepSeekV3ToolParser",
        "tool qwen3_coder vllm.tool_parsers.qwen3_engine_tool_parser Qwen3EngineToolParser",
        "tool qwen3_xml vllm.tool_parsers.qwen3_engine_tool_parser Qwen3EngineToolParser",
        "tool hf vllm.tool_parsers.response_template_tool_parser ResponseTemplateToolParser",
        "reasoning qwen3 vllm.reasoning.qwen3_engine_reasoning_parser Qwen3ParserReasoningAdapter",
        "reasoning glm45 vllm.reasoning.glm47_moe_reasoning_parser Glm47MoeParserReasoningAdapter",
        "reasoning kimi_k3 vllm.reasoning.kimi_k3_reasoning_parser KimiK3ReasoningParser",
        "renderer hf vllm.renderers.hf HfRenderer",
        "renderer deepseek_v4 vllm.renderers.deepseek_v4 DeepseekV4Renderer",
        "renderer alpamayo2_super vllm.renderers.hf HfRenderer",
        "tokenizer hf vllm.tokenizers.hf CachedHfTokenizer",
        "tokenizer mistral vllm.tokenizers.mistral MistralTokenizer",
    ],
)
def test_names_and_what_implements_them(known):
    """Two names may share a class; the module is the one vLLM imports."""
    assert Entry(*known.split()) in vllm.parts(files())


def test_architectures_of_the_model_registry():
    """124 text, 127 multimodal, and 23 that only the Transformers backend runs; pooling and draft models are none."""
    found = vllm.architectures(files())
    assert Counter(entry.section for entry in found) == {"text": 124, "multimodal": 127, "unsorted": 23}
    assert Architecture("Qwen3ForCausalLM", "text") in found
    assert "BertModel" not in {entry.name for entry in found}


def test_examples_of_the_tests():
    """142 text and 138 multimodal architectures; the default checkpoint first, then the extra ones."""
    found = vllm.examples(files())
    assert Counter(entry.section for entry in found) == {
        "text": 142,
        "multimodal": 138,
        "draft": 69,
        "pooling": 60,
        "backend": 12,
    }
    by_name = {entry.name: entry for entry in found if entry.section == "text"}
    assert by_name["BloomForCausalLM"].checkpoints == (Named("bigscience/bloom-560m"), Named("bigscience/bloomz-1b1"))
    assert by_name["Gemma2ForCausalLM"].checkpoints == (Named("google/gemma-2-9b"), Named("google/gemma-2-2b-it"))
    assert by_name["NemotronHPuzzleForCausalLM"].checkpoints == (), "vLLM names no repository for it"


def test_documented_checkpoints():
    """128 text and 124 multimodal architectures; rows may hold several, and `etc.` or TBA name nothing."""
    found = vllm.documented(files())
    assert Counter(entry.section for entry in found) == {"text": 128, "multimodal": 124}
    by_name = {entry.name: entry for entry in found}
    assert Named("zai-org/chatglm2-6b") in by_name["ChatGLMForConditionalGeneration"].checkpoints
    assert by_name["ChatGLMModel"].checkpoints == by_name["ChatGLMForConditionalGeneration"].checkpoints
    assert by_name["AfmoeForCausalLM"].checkpoints == ()
    assert by_name["SmolVLMForConditionalGeneration"].checkpoints == (), "vLLM writes the name without its owner"


def test_the_commit_of_the_archive():
    """vLLM's source archive says which commit it was built from."""
    assert vllm.commit(files()) == "4ba787ec9"


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("vllm/tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER = {", "_PARSERS = {", "assigns"),
        ("vllm/renderers/registry.py", '("hf", "HfRenderer")', 'lazy("hf", "HfRenderer")', "no literal"),
        ("vllm/tokenizers/registry.py", "_VLLM_TOKENIZERS = {", "_VLLM_TOKENIZERS = {**MORE,", "a key is no text"),
    ],
)
def test_parts_written_in_another_way_are_an_error(path, old, new, told):
    """One entry that cannot be read fails the whole registry."""
    changed = files() | {path: files()[path].replace(old, new)}
    assert changed != files()
    with pytest.raises(RegistryError, match=told):
        vllm.parts(changed)


def test_a_new_dict_of_models_is_an_error():
    """A section this reader does not know would be left out of the list."""
    text = files()[vllm.EXAMPLES]
    changed = text.replace("    **_REWARD_EXAMPLE_MODELS,\n", "    **_REWARD_EXAMPLE_MODELS,\n    **_NEW_MODELS,\n")
    with pytest.raises(RegistryError, match="joins other dicts: _NEW_MODELS"):
        vllm.examples({vllm.EXAMPLES: changed})
    text = files()[vllm.ARCHITECTURES]
    changed = text.replace("    **_REWARD_MODELS,\n", "")
    with pytest.raises(RegistryError, match="joins other dicts: _REWARD_MODELS"):
        vllm.architectures({vllm.ARCHITECTURES: changed})


def one_example(text: str) -> dict[str, str]:
    """The tests' registry with `text` as the one example of each section."""
    tables = [f"{name} = {{'A': {text}}}" for name in vllm.EXAMPLE_SECTIONS]
    joined = ", ".join(f"**{name}" for name in vllm.EXAMPLE_SECTIONS)
    return {vllm.EXAMPLES: "\n".join([*tables, f"_EXAMPLE_MODELS = {{{joined}}}"])}


def test_an_example_may_name_its_checkpoint_by_keyword_and_pin_it():
    """The revision holds for the default checkpoint only."""
    text = "_HfExamplesInfo(default='a/b', extras={'x': 'c/d'}, revision='refs/pr/1')"
    assert vllm.examples(one_example(text))[0].checkpoints == (Named("a/b", "refs/pr/1"), Named("c/d"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("info('a/b')", "is no _HfExamplesInfo"),
        ("'a/b'", "is no _HfExamplesInfo"),
        ("_HfExamplesInfo()", "in another place"),
        ("_HfExamplesInfo('a/b', {}, 'c/d')", "in another place"),
        ("_HfExamplesInfo(name)", "no literal"),
        ("_HfExamplesInfo('a/b', {'x': 1})", "a checkpoint is no text"),
        ("_HfExamplesInfo('a/b', revision=7)", "the revision or the draft model is no text"),
        ("_HfExamplesInfo('a/b', speculative_model=7)", "the revision or the draft model is no text"),
    ],
)
def test_an_example_of_another_shape_is_an_error(text, told):
    """A checkpoint that cannot be read is not the same as an architecture without one."""
    with pytest.raises(RegistryError, match=told):
        vllm.examples(one_example(text))


def test_a_page_without_one_of_its_tables_is_an_error():
    """Headings move between releases; a table that is not found names no checkpoints."""
    changed = files()[vllm.DOCUMENTED].replace("#### Realtime Transcription", "#### Live Transcription")
    with pytest.raises(RegistryError, match=r"no table below .* / Realtime Transcription"):
        vllm.documented({vllm.DOCUMENTED: changed})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| `BloomForCausalLM` |", "| BLOOM |"),
        ("| `BloomForCausalLM` |", "| `BloomForCausalLM` | more |"),
        ("| Example HF Models |", "| Examples |"),
    ],
)
def test_a_documented_row_of_another_shape_is_an_error(old, new):
    """A row without its architecture, with a cell too many, or below other columns."""
    changed = files()[vllm.DOCUMENTED].replace(old, new)
    assert changed != files()[vllm.DOCUMENTED]
    with pytest.raises(RegistryError):
        vllm.documented({vllm.DOCUMENTED: changed})
