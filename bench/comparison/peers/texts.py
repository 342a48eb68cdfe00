"""BERT on a file of texts, as configs/text.yaml has it without data.bucket: transformers, DistributedDataParallel over gloo."""

import csv

import record
import torch
import torch.distributed as dist
import transformers
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

LONGEST = 64
NO_DECAY = ("bias", "LayerNorm")


def read(path, tokenizer):
    """[{input_ids, ..., labels}], the tokens made before training."""
    rows = list(csv.DictReader(open(path, newline="")))
    names = sorted({row["label"] for row in rows})
    made = tokenizer([row["text"] for row in rows], truncation=True, max_length=LONGEST)
    return [{**{name: made[name][i] for name in made}, "labels": names.index(row["label"])} for i, row in enumerate(rows)]


def groups_of(model):
    spared = {name for name, _ in model.named_parameters() if any(part in name for part in NO_DECAY)}
    return [{"params": [p for name, p in model.named_parameters() if name not in spared], "weight_decay": 0.01},
            {"params": [p for name, p in model.named_parameters() if name in spared], "weight_decay": 0.0}]


def main():
    options = record.arguments()
    dist.init_process_group("gloo")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(f"{options.data}/model")
    samples = read(f"{options.data}/train.csv", tokenizer)
    sampler = DistributedSampler(samples)
    collate = transformers.DataCollatorWithPadding(tokenizer)
    loader = DataLoader(samples, batch_size=16, sampler=sampler, collate_fn=collate)

    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification.from_pretrained(f"{options.data}/model").train()
    optimizer = torch.optim.AdamW(groups_of(model), lr=0.00003)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 20, options.steps)
    model = DistributedDataParallel(model)
    torch.manual_seed(0)

    steps = record.Record(options)
    for batch in steps.batches(loader, sampler):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        steps.add(loss.item(), len(batch["labels"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
