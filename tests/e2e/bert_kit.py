"""Small BERT models that transformers makes, texts for them, and what transformers says and learns."""

import contextlib
import os

import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SIZES = dict(vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80,
             max_position_embeddings=40, type_vocab_size=2)
LABELS = ["entailment", "neutral", "contradiction"]


def make_model(seed=0, **more):
    torch.manual_seed(seed)
    config = transformers.BertConfig(**{**SIZES, "id2label": dict(enumerate(LABELS)), **more})
    return transformers.BertForSequenceClassification(config)


def spread(model, seed=1):
    """Weights as a trained model might have them: no bias is zero, no norm one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def texts(count, longest=24, seed=2, padded=True, vocab=SIZES["vocab_size"]):
    """int64 [count, 3, longest]: tokens, types and masks of pairs of random lengths."""
    generator = torch.Generator().manual_seed(seed)
    input = torch.zeros(count, 3, longest, dtype=torch.long)
    for row in input:
        length = int(torch.randint(4, longest + 1, (1,), generator=generator)) if padded else longest
        row[0, :length] = torch.randint(5, vocab, (length,), generator=generator)
        row[1, length // 2:length] = 1
        row[2, :length] = 1
    return input


def labels(count, seed=3):
    return torch.randint(0, len(LABELS), (count,), generator=torch.Generator().manual_seed(seed))


def parts(input):
    """As the model is called, a batch cut to its longest text."""
    input = input[:, :, :int(input[:, 2].sum(1).max())]
    return dict(input_ids=input[:, 0], token_type_ids=input[:, 1], attention_mask=input[:, 2])


@contextlib.contextmanager
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def logits_of(model, input):
    with one_thread(), torch.no_grad():
        return model.eval()(**parts(input)).logits


NO_DECAY = ["bias", "LayerNorm"]


def groups_of(model, decay):
    """As transformers' examples divide the parameters for AdamW."""
    spared = {name for name, _ in model.named_parameters() if any(part in name for part in NO_DECAY)}
    return [{"params": [p for name, p in model.named_parameters() if name not in spared], "weight_decay": decay},
            {"params": [p for name, p in model.named_parameters() if name in spared], "weight_decay": 0.0}]


def train_in_python(model, input, target, *, seed=5, batch=4, steps=20, warmup=None, accumulate=1, precision=None,
                    checkpointing=False):
    """The loop that people write, with PyTorch's DataLoader. The loss of each step, and the optimizer."""
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(groups_of(model, decay=0.01), lr=1e-3)
    schedule = None
    if warmup is not None:
        schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    losses = []
    with one_thread():
        torch.manual_seed(seed)
        model.train()
        while len(losses) < steps:
            batches = list(torch.utils.data.DataLoader(list(range(len(input))), batch_size=batch))
            for first in range(0, len(batches), accumulate):
                parts_of_step = batches[first:first + accumulate]
                optimizer.zero_grad()
                loss = 0.0
                for rows in parts_of_step:
                    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                        one = model(**parts(input[rows]), labels=target[rows]).loss / len(parts_of_step)
                    one.backward()
                    loss += one.item()
                optimizer.step()
                if schedule:
                    schedule.step()
                losses.append(loss)
    return losses[:steps], optimizer


def ddp_rank(rank, world, folder, data, out, steps):
    """One rank of the loop that people write for DDP; rank 0 leaves its parameters in `out`."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=world)
    data = load_file(data)
    rows = torch.utils.data.DistributedSampler(range(len(data["input"])), world, rank, shuffle=False)
    torch.manual_seed(5)
    model = transformers.BertForSequenceClassification.from_pretrained(folder).train()
    optimizer = torch.optim.AdamW(groups_of(model, decay=0.01), lr=1e-3)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    while steps:
        for batch in list(torch.tensor(list(rows)).split(4))[:steps]:
            optimizer.zero_grad()
            wrapped(**parts(data["input"][batch]), labels=data["target"][batch]).loss.backward()
            optimizer.step()
            steps -= 1
    if rank == 0:
        save_file(model.state_dict(), out)
    torch.distributed.destroy_process_group()


__all__ = [name for name in dir() if not name.startswith("_")]
