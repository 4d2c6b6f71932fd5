"""What SMG 1.13.0 registers by its source text, and how its reader fails when the text is another."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from bellwether.errors import RegistryError
from bellwether.registries import smg
from bellwether.registries.sources import read_files, read_sources
from bellwether.registries.values import Entry
from support import ROOT, package

ACCEPTED = {
    "tool": "cohere deepseek deepseek31 deepseek32 deepseek_v4 deepseek_v41 gemma4 glm45_moe glm47_moe hy_v4 inkling "
    "json kimi_k3 kimik2 llama minimax_m2 minimax_m3 mistral nemotron passthrough pythonic qwen qwen_coder qwen_xml "
    "sarashina step3",
    "reasoning": "base cohere_cmd deepseek_r1 deepseek_v31 deepseek_v4 deepseek_v41 gemma4 glm45 hy_v4 inkling kimi "
    "kimi_k25 kimi_k3 kimi_thinking minimax minimax_m3 nano_v3 passthrough qwen3 qwen3_thinking step3",
}
"""What a running gateway was seen to accept, by hand."""
TABLES = (
    "qwen3 qwen3_tagged qwen3_tagged_direct qwen2.5 deepseek_v4.1 seed_oss hy4 ling iquest olmo3 lfm2.5 xlam json "
    "minimax_m2 minimax_m3 mistral_v13 llama_nemotron kimi_k3 inkling minicpm5 dots3 gemma4 function_gemma glm glm4 "
    "k2_horizon plain"
)
"""Symphony's, in its order."""


@functools.cache
def files() -> dict[str, str]:
    """The registry files of the pinned source archive."""
    source = read_sources(ROOT)["smg"]
    return read_files(source, package(source.package))


def names(entries: list[Entry], kind: str) -> list[str]:
    return [entry.name for entry in entries if entry.kind == kind]


def test_how_many_parts_are_registered():
    """26 tool and 21 reasoning parsers, six renderers, two tokenizers; Harmony, which has no registry, beside them."""
    assert Counter(entry.kind for entry in smg.parts(files()) if entry.name != "harmony") == {
        "tool": 26,
        "reasoning": 21,
        "renderer": 6,
        "tokenizer": 2,
    }
    assert [entry.kind for entry in smg.parts(files()) if entry.name == "harmony"] == ["tool", "reasoning", "renderer"]


@pytest.mark.parametrize("kind", ["tool", "reasoning"])
def test_parsers_are_those_a_running_gateway_accepts(kind):
    """Text and program name the same."""
    assert sorted(names(smg.parts(files()), kind)) == sorted([*ACCEPTED[kind].split(), "harmony"])


@pytest.mark.parametrize(
    "known",
    [
        "tool qwen tool_parser::parsers QwenParser",
        "tool qwen_coder tool_parser::parsers QwenXmlParser",
        "tool nemotron tool_parser::parsers QwenXmlParser",
        "tool kimik2 tool_parser::parsers KimiK2Parser",
        "tool deepseek32 tool_parser::parsers DeepSeekDsmlParser::v32",
        "tool glm47_moe tool_parser::parsers Glm4MoeParser::glm47",
        "reasoning deepseek_v31 reasoning_parser::parsers BaseReasoningParser",
        "reasoning kimi_k3 reasoning_parser::parsers KimiK3Parser",
        "renderer jinja tokenizer::chat_template Renderer::Jinja",
        "renderer kimi_k3_xtml tokenizer::encoders::kimi_k3_xtml Renderer::KimiK3Xtml",
        "tokenizer tiktoken tokenizer::factory TokenizerType::Tiktoken",
    ],
)
def test_names_and_what_implements_them(known):
    """A parser that is made in one of several ways says which: the ways read different formats."""
    assert Entry(*known.split()) in smg.parts(files())


def test_renderers_are_the_template_and_five_encoders():
    """Helpers in the encoders' folder are none."""
    assert sorted(names(smg.parts(files()), "renderer")) == [
        *("deepseek_v32", "deepseek_v4", "deepseek_v41", "harmony", "jinja", "kimi_k25_tools", "kimi_k3_xtml"),
    ]


def test_symphony_reads_what_its_tables_emit():
    """26 of 27 tables give calls; six give no reasoning, one neither; `hf` reads by the checkpoint's own template."""
    assert list(smg.tables(files()).values()) == TABLES.split()
    found = smg.symphony(files())
    assert names(found, "tool") == [*TABLES.removesuffix(" plain").split(), "hf"]
    silent = {"qwen2.5", "olmo3", "xlam", "json", "function_gemma", "plain"}
    assert names(found, "reasoning") == [*(name for name in TABLES.split() if name not in silent), "hf"]


def test_tables_of_one_format_are_told_apart():
    """Three tables are made by one function, with another syntax of calls each."""
    found = {entry.name: entry.cls for entry in smg.symphony(files()) if entry.kind == "tool"}
    assert [found[name] for name in ("qwen3", "qwen3_tagged", "qwen3_tagged_direct")] == [
        *("qwen3 (Qwen3)", "qwen3 (Qwen3Tagged)", "qwen3 (Qwen3TaggedDirect)"),
    ]


def test_patterns_of_model_names():
    """Each chooses a registered parser; of two that fit, order or length decides, so the order is kept."""
    found = smg.patterns(files())
    assert {kind: len(pairs) for kind, pairs in found.items()} == {"tool": 86, "reasoning": 39}
    assert ("deepseek-ai/DeepSeek-V3.2-Exp*", "deepseek31") in found["tool"]
    reasoning = [pattern for pattern, _ in found["reasoning"]]
    assert reasoning.index("kimi-k3") < reasoning.index("kimi")


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        (smg.TOOL, 'register_parser("json", ||', "register_parser(JSON, ||", r"factory\.rs:\d+ registers a parser in"),
        (smg.TOOL, 'register_parser("json", || Box::new(JsonParser::new()))', 'register_parser("json", json)', "anoth"),
        (smg.TOOL, 'register_parser("json"', 'register_parser("qwen"', "registers qwen twice"),
        (smg.REASONING, "registry.register_parser", "registry.add_parser", "registers no parser"),
        (smg.RENDERERS[0], "enum Renderer {", "enum Way {", "0 enums Renderer"),
        (smg.RENDERERS[0], "    DeepseekV32,\n", "    DeepseekV33,\n", "no encoder is called as Renderer::DeepseekV33"),
        (smg.RENDERERS[0], "    DeepseekV32,\n", "", "no Renderer stands for the encoder deepseek_v32"),
        (smg.RENDERERS[0], "    DeepseekV32,\n", "    DeepseekV32 { a: u8 },\n", "enum Renderer is written in another"),
        (smg.ENCODERS + "mod.rs", "pub mod deepseek_v4;", "pub mod deepseek_v4;\npub mod new;", "no file for new"),
        (smg.TOKENIZERS, "enum TokenizerType {", "struct TokenizerType {", "0 enums TokenizerType"),
        (smg.GRPC, "mod harmony;", "mod other;", "no module harmony"),
        (smg.HARMONY, "HarmonyParserAdapter", "Adapter", "has no HarmonyParserAdapter"),
    ],
)
def test_registries_written_in_another_way_are_an_error(path, old, new, told):
    """A registration that is not understood is never left out."""
    changed = files() | {path: files()[path].replace(old, new)}
    assert changed != files()
    with pytest.raises(RegistryError, match=told):
        smg.parts(changed)


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        (smg.TABLES, "[Table; 27]", "[Table; 28]", "no whole list"),
        (smg.TABLES, 'Self::Xlam => "xlam",', "Self::Xlam => XLAM,", "differ in Xlam"),
        (smg.TABLES, "Self::Xlam => xlam(),", "Self::Xlam => XLAM,", "differ in Xlam"),
        (smg.TABLES, 'Self::Xlam => "xlam",', 'Self::Xlam => "json",', "names json twice"),
        (smg.TABLES, "pub fn name(self)", "pub fn called(self)", "has no fn name"),
        (smg.FORMATS + "xlam.rs", "pub fn xlam(", "pub fn list(", "builds its table in another way"),
        (smg.FORMATS + "plain.rs", "Emits::", "Gives::", "builds its table in another way"),
        (smg.TEMPLATE, "pub const TEMPLATE_PARSER", "pub const OTHER", "has no TEMPLATE_PARSER"),
    ],
)
def test_tables_written_in_another_way_are_an_error(path, old, new, told):
    """Its list, its names and its functions stand apart, and have to agree."""
    changed = files() | {path: files()[path].replace(old, new)}
    assert changed != files()
    with pytest.raises(RegistryError, match=told):
        smg.symphony(changed)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('map_model("gemma-*", "json")', 'map_model("gemma-*", "gem")', "chooses gem, not registered"),
        ('map_model("gemma-*", "json")', 'map_model(GEMMA, "json")', "map_model is called in another way"),
    ],
)
def test_patterns_written_in_another_way_are_an_error(old, new, told):
    """A model would get another parser than the list says."""
    with pytest.raises(RegistryError, match=told):
        smg.patterns(files() | {smg.TOOL: files()[smg.TOOL].replace(old, new)})


@pytest.mark.parametrize("read", [smg.parts, smg.symphony, smg.patterns])
def test_a_missing_file_is_an_error(read):
    """An empty archive registers nothing it could be asked for."""
    with pytest.raises(RegistryError, match="is not among the registry files"):
        read({})


def test_what_tests_register_is_none():
    """The factories' own tests register parsers too; comments may speak of some."""
    text = files()[smg.TOOL] + '\n#[cfg(test)]\nmod more {\n registry.register_parser("toy", toy);\n}\n'
    commented = text.replace(
        "// Register default parsers", '// registry.register_parser("old", || Box::new(Old::new()));'
    )
    assert commented != text
    assert smg.parts(files() | {smg.TOOL: commented}) == smg.parts(files())
