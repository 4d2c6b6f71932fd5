"""Which checkpoints are in the list, and which are left out by which rule."""

from __future__ import annotations

import pytest

from bellwether.params import Manifest
from bellwether.registries.catalogue import Checkpoint, catalogue, quantised
from bellwether.registries.values import Architecture, Named

COMMIT = "a6cdfd3464d1b767259cad23e164eaf39d3e3960"


def manifest(model: str, slug: str, group: str | None = None) -> Manifest:
    return Manifest(slug, model, "f" * 40, 3, "MIT", {}, {}, {}, {}, group=group)


def keys(found) -> list[str]:
    return [checkpoint.key for checkpoint in found.checkpoints]


def test_a_checkpoint_carries_who_names_it_and_its_architectures():
    """An engine that implements the architecture is a source too, though it names no checkpoint."""
    found = catalogue(
        {
            "vllm-tests": [Architecture("AForCausalLM", "text", (Named("o/a"),))],
            "vllm-docs": [Architecture("BForCausalLM", "multimodal", (Named("o/a"), Named("o/b")))],
            "vllm-registry": [Architecture("BForCausalLM", "text")],
            "sglang": [Architecture("AForCausalLM", "unsorted")],
        },
        [],
    )
    assert found.checkpoints == (
        Checkpoint(
            "o/a",
            ("AForCausalLM", "BForCausalLM"),
            ("sglang", "vllm-docs", "vllm-registry", "vllm-tests"),
            "multimodal",
        ),
        Checkpoint("o/b", ("BForCausalLM",), ("vllm-docs", "vllm-registry"), "multimodal"),
    )


def test_who_names_another_checkpoint_of_the_architecture_is_no_source():
    """vLLM's page names o/b only; that its tests know the architecture says nothing of o/a."""
    named = {
        "vllm-tests": [Architecture("AForCausalLM", "text", (Named("o/a"),))],
        "vllm-docs": [Architecture("AForCausalLM", "text", (Named("o/b"),))],
    }
    assert [one.sources for one in catalogue(named, []).checkpoints] == [("vllm-tests",), ("vllm-docs",)]


def test_a_manifest_adds_its_checkpoint_and_its_pins():
    """What is pinned here is in the list though no engine names it; a member is served by its group."""
    named = {"vllm-tests": [Architecture("AForCausalLM", "text", (Named("o/a", "refs/pr/7"),))]}
    pinned, unnamed = catalogue(named, [manifest("o/a", "a", "b"), manifest("o/own", "own")]).checkpoints
    assert (pinned.slug, pinned.group, pinned.revision) == ("a", "b", "f" * 40)
    assert pinned.sources == ("manifest", "vllm-tests")
    assert (unnamed.model, unnamed.group, unnamed.sources, unnamed.modality) == ("o/own", "own", ("manifest",), None)


@pytest.mark.parametrize(
    ("revision", "kept", "asked"), [(COMMIT, COMMIT, None), ("refs/pr/17", None, "refs/pr/17"), (None, None, None)]
)
def test_only_a_commit_is_a_revision(revision, kept, asked):
    """A branch or a pull request moves: it is asked for, and never written down as a pin."""
    named = {"vllm-tests": [Architecture("AForCausalLM", "text", (Named("o/a", revision),))]}
    (checkpoint,) = catalogue(named, []).checkpoints
    assert (checkpoint.revision, checkpoint.asked) == (kept, asked)


def test_an_architecture_without_a_checkpoint_is_an_entry_of_its_own():
    """As long as no source names a checkpoint for it."""
    named = {
        "vllm-docs": [Architecture("AForCausalLM", "text", (Named("o/a"),))],
        "sglang": [Architecture("AForCausalLM", "unsorted"), Architecture("GrokForCausalLM", "unsorted")],
    }
    assert catalogue(named, []).checkpoints[0] == Checkpoint(None, ("GrokForCausalLM",), ("sglang",), None)
    assert keys(catalogue(named, [])) == ["GrokForCausalLM", "o/a"]


@pytest.mark.parametrize(
    "name",
    [
        *("LlamaEmbeddingModel", "Qwen3ForRewardModel", "Gemma2ForSequenceClassification", "Contriever", "Qwen3Model"),
        *("LlamaForSequenceClassificationWithNormal_Weights", "PixtralVisionModel", "Lfm2BidirectionalModel"),
    ],
)
def test_heads_that_give_vectors_or_scores_are_left_out(name):
    """SGLang lists them among its models; the name says what they are."""
    found = catalogue({"sglang": [Architecture(name, "unsorted")]}, [])
    assert (keys(found), found.excluded["pooling"]) == ([], (name,))


@pytest.mark.parametrize(
    "name",
    [
        *("LlamaForCausalLMEagle3", "DeepseekV3ForCausalLMNextN", "MiMoMTP", "DFlashDraftModel", "Qwen3DSparkModel"),
        *("Gemma4AssistantForCausalLM", "LiLiCorrDraftModel"),
    ],
)
def test_draft_models_are_left_out(name):
    """They propose tokens for another model."""
    found = catalogue({"sglang": [Architecture(name, "unsorted")]}, [])
    assert (keys(found), found.excluded["draft"]) == ([], (name,))


@pytest.mark.parametrize("name", ["LLaDA2MoeModelLM", "InternVLChatModel", "MiniCPMV", "Grok1ModelForCausalLM"])
def test_unusual_names_of_models_that_write_are_kept(name):
    """A rule by name must not take a model out because `Model` stands in it."""
    assert keys(catalogue({"sglang": [Architecture(name, "unsorted")]}, [])) == [name]


def test_what_is_drafted_for_writes_messages():
    """vLLM's tests name a chat model beside its draft: the one is in, the other is not."""
    draft = Architecture("EagleLlamaForCausalLM", "draft", (Named("o/Chat-8B"), Named("o/small", draft=True)))
    itself = Architecture("EagleLlama4ForCausalLM", "draft", (Named("o/EAGLE-Scout"),))
    found = catalogue({"vllm-tests": [draft, itself]}, [])
    assert keys(found) == ["o/Chat-8B"]
    assert found.checkpoints[0].architectures == (), "the draft's architecture is not its own"
    assert found.excluded["draft"] == ("EagleLlama4ForCausalLM", "EagleLlamaForCausalLM", "o/EAGLE-Scout", "o/small")


def test_a_checkpoint_of_pooling_sections_only_is_left_out():
    """One that is a chat model elsewhere stays, since its messages are read there."""
    named = {
        "vllm-tests": [
            Architecture("AModel", "pooling", (Named("o/vectors"), Named("o/chat"))),
            Architecture("AForCausalLM", "text", (Named("o/chat"),)),
        ]
    }
    found = catalogue(named, [])
    assert (keys(found), found.excluded["pooling"]) == (["o/chat"], ("AModel", "o/vectors"))


@pytest.mark.parametrize(
    ("name", "modality"), [("TransformersForCausalLM", "text"), ("TransformersMultiModalForCausalLM", "multimodal")]
)
def test_models_of_the_transformers_backend_are_sorted_by_name(name, modality):
    """vLLM lists the backend's classes apart from text and multimodal ones."""
    (found,) = catalogue({"vllm-tests": [Architecture(name, "backend", (Named("o/a"),))]}, []).checkpoints
    assert found.modality == modality


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("RedHatAI/Llama-3.2-1B-Instruct-FP8", True),
        ("nm-testing/pixtral-12b-FP8-dynamic", True),
        ("o/flint-nvfp4-gguf", True),
        ("tencent/Hy4-preview", False),
        ("fp8/model", False),
        ("o/AWQuarium-7B", False),
        ("o/int4model", False),
    ],
)
def test_a_quantised_copy_is_known_by_a_whole_word_of_its_name(model, expected):
    """An owner's name, or a word that only begins so, says nothing about the copy."""
    assert quantised(model) is expected


def test_a_quantised_copy_is_left_out_unless_it_is_pinned_here():
    """Whoever writes a manifest for one means it."""
    named = {"vllm-docs": [Architecture("AForCausalLM", "text", (Named("o/a-FP8"), Named("o/b-AWQ")))]}
    found = catalogue(named, [manifest("o/b-AWQ", "b-awq")])
    assert (keys(found), found.excluded["quantised-name"]) == (["o/b-AWQ"], ("o/a-FP8",))
