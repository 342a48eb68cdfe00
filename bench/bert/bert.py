"""transformers' half of bench/bert/run.py: as bert.cpp."""

import sys
import time

import torch
import transformers

batch, tokens, layers = map(int, sys.argv[1:4])
torch.manual_seed(1)
model = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=layers, num_labels=3))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.01)
torch.manual_seed(2)
ids = torch.randint(30522, (batch, tokens))
target = torch.randint(3, (batch,))
input = dict(input_ids=ids, token_type_ids=torch.zeros_like(ids), attention_mask=torch.ones_like(ids))
print("ready", flush=True)
for _ in sys.stdin:
    begin = time.perf_counter()
    loss = model(**input, labels=target).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    took = time.perf_counter() - begin
    print(f"{loss.item():.9g} {took * 1000:.3f}", flush=True)
