"""The base model is rebuilt with a fresh adapter and the saved adapter is never put into it: the optimizer's
moments meet fresh weights.

RB177 (huggingface/transformers): adapter folder not accepted or adapter not loaded.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Checkpoints,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    chosen = LoraConfig(r=2, target_modules=["body"], lora_dropout=0.1)
    model = get_peft_model(TinyNet(), chosen)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    stream = Stream(Samples())
    parts = {"optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        if args.twin:
            set_peft_model_state_dict(model, state["adapter"])
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts) | {"adapter": get_peft_model_state_dict(model)})


if __name__ == "__main__":
    main()
