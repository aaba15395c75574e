"""The transformers backend on a tiny random model that the test makes; nothing is downloaded."""

import math

import pytest

from dtdr.llm import backends
from dtdr.llm.backends import LLMError
from dtdr.llm.backends.transformers import TransformersLLM
from tests import llm_battery
from tests.llm_battery import CHOICES, PROMPT

CONTEXT = 256
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_model(folder, template):
    torch = pytest.importorskip("torch", reason="needs pip install 'dtdr[transformers]'")
    transformers = pytest.importorskip(
        "transformers", reason="needs pip install 'dtdr[transformers]'"
    )
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([PROMPT.text, *CHOICES], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = template
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=fast.eos_token_id,
        )
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[TEMPLATE, None], ids=["chat", "text"])
def folder(request, tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), request.param)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_transformers_passes_the_battery(folder, batch_size):
    with backends.create(f"hf:{folder}", device="cpu", batch_size=batch_size) as llm:
        llm_battery.run(llm, context=CONTEXT)


def test_scores_are_products_of_next_token_probabilities(folder):
    """One token more or less of a text multiplies its probability by that token's."""
    with backends.create(f"hf:{folder}", device="cpu") as llm:
        assert isinstance(llm, TransformersLLM)
        torch, ids = llm._torch, llm._ids(PROMPT)
        (score,) = llm._score_all(ids, ["send_mail"])
        total = 0.0
        for token in [*llm._encode("send_mail"), llm._end]:
            with torch.inference_mode():
                logits = llm._model(torch.tensor([ids])).logits[0, -1]
            total += logits.log_softmax(-1)[token].item()
            ids = [*ids, token]
        assert score == pytest.approx(total, abs=1e-3)
        assert math.isfinite(total)


def test_a_model_that_is_not_there_is_one_clear_error(tmp_path):
    pytest.importorskip("transformers", reason="needs pip install 'dtdr[transformers]'")
    pytest.importorskip("torch", reason="needs pip install 'dtdr[transformers]'")
    with pytest.raises(LLMError, match="cannot load the model"):
        backends.create(f"hf:{tmp_path}")


def test_a_template_without_a_system_role_has_the_user_say_the_guidelines(tmp_path):
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    make_model(tmp_path, refusing + TEMPLATE)
    with TransformersLLM(str(tmp_path)) as llm:
        text = llm._apply_template(PROMPT)
        assert text.startswith(f"<|user|>{PROMPT.guidelines}")
        assert "<|system|>" not in text
        assert llm.complete(PROMPT, max_tokens=1, choices=CHOICES).text in CHOICES


def test_a_truncated_model_is_one_clear_error(tmp_path):
    make_model(tmp_path, None)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(LLMError, match="cannot load the model"):
        backends.create(f"hf:{tmp_path}")
