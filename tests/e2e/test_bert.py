"""BERT beside transformers': the same names, bits, draws and steps, from its folders and back into them."""

import pytest

pytest.importorskip("transformers")

import torch  # noqa: E402
from bert_kit import *  # noqa: E402, F403


@pytest.fixture(scope="module")
def peer(build_dir):
    program = build_dir / "bin/bert_peer"
    if not program.exists():
        pytest.skip("bert_peer is not built")
    return program


@pytest.fixture
def logits(peer, run, tmp_path):
    """logits(folder, input, classes) -> as lockstep gives them."""
    def ask(folder, input, classes=len(LABELS)):
        input = input[:, :, :int(input[:, 2].sum(1).max())].contiguous()
        save_file({"input": input}, tmp_path / "in.safetensors")
        run(peer, "logits", folder, classes, tmp_path / "in.safetensors", tmp_path / "out.safetensors", check=True)
        return load_file(tmp_path / "out.safetensors")["logits"]
    return ask


@pytest.mark.parametrize("more", [
    {},
    dict(hidden_act="gelu_new", num_attention_heads=6, num_hidden_layers=1),
    dict(hidden_act="relu", hidden_size=32, num_attention_heads=1, layer_norm_eps=1e-5, pad_token_id=None),
    dict(hidden_act="gelu_pytorch_tanh", type_vocab_size=3),
], ids=str)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_logits_equal_transformers(more, padded, logits, tmp_path):
    model = spread(make_model(**more))
    model.save_pretrained(tmp_path / "folder")
    input = texts(7, padded=padded)
    ours, theirs = logits(tmp_path / "folder", input), logits_of(model, input)
    assert theirs.abs().max() > 0.01
    assert torch.equal(ours, theirs), (ours - theirs).abs().max()


@pytest.mark.parametrize("more", [{}, dict(initializer_range=0.5, pad_token_id=3)], ids=str)
def test_random_weights_are_those_that_transformers_draws(more, peer, run, tmp_path):
    words = [f"{key}={value}" for key, value in {**SIZES, **more}.items()]
    run(peer, "draw", 11, len(LABELS), tmp_path / "drawn.safetensors", *words, check=True)
    ours, theirs = load_file(tmp_path / "drawn.safetensors"), make_model(seed=11, **more).state_dict()
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
