"""The words of pre-flight checks."""

from __future__ import annotations

from prefdata.training.word import Word

_CLEAN = "Clean the set (prefdata clean IN OUT) and train on its folder."
_TEXTS: dict[str, tuple[str, str]] = {
    "uncleaned_data": (
        "The input was not cleaned, and pairs of it do not pass the checks that are certain. They would train in silence or stop the trainer.",
        "prefdata clean IN OUT drops and lists them; then train on OUT.",
    ),
    "fp16_weights": (
        "The weights to be trained are float16. AdamW's epsilon 1e-8 is 0 in float16 and small squared gradients vanish, so the first step divides 0 by 0 and every weight becomes NaN.",
        "Train float32 weights (dtype: float32), with bf16 arithmetic where the hardware has it, or adapters.",
    ),
    "bf16_weights": (
        "The weights to be trained are bfloat16, whose 8 bits round small updates away: a weight of 0.02 does not change by 1e-6.",
        "Train float32 weights with bf16 arithmetic (dtype: float32, precision: bf16), or adapters.",
    ),
    "fp16_autocast": (
        "fp16 arithmetic works with float32 weights on a GPU only: elsewhere it is ignored or refused.",
        "precision: bf16 where the hardware has it, else fp32; dtype: float32.",
    ),
    "implausible_learning_rate": (
        "The learning rate is far from what is known to work for this method and size. Too high a rate gives no NaN: the model says garbage with a loss of 0.",
        "All weights: 5e-7 to 1e-6; adapters: about 1e-5. Leave learning_rate out for these defaults.",
    ),
    "implausible_beta": (
        "beta is in the unit of its loss; far from the usual values the loss is flat or hard, and at 0 there is no gradient.",
        "0.1 is usual for sigmoid; sigmoid_norm wants 2 to 10; see the loss's paper.",
    ),
    "implausible_setting": (
        "A setting is possible and hardly meant: many epochs, few pairs a step, a long warm-up, a strange scale of the adapters.",
        "Leave the setting out for its default, or go on if it is meant.",
    ),
    "loss_settings": (
        "The loss needs a setting that it does not get, or cannot be had together with another one.",
        "Change label_smoothing, loss_weights or loss_type as told, or set use_weights: false.",
    ),
    "ignored_smoothing": (
        "label_smoothing is given and a loss of this run does not read it.",
        "Name losses that read it, or leave label_smoothing out.",
    ),
    "position_limit": (
        "max_length is beyond the positions of the model: learned ones end there with an IndexError, rotary ones were never trained there.",
        "Lower max_length to the model's positions.",
    ),
    "memory_estimate": (
        "By estimate the run does not fit into the memory that is free.",
        "Lower micro_batch_size or max_length, train adapters (--lora), or set gradient_checkpointing: true.",
    ),
    "missing_end_token": (
        "Without an end token TRL cannot end an answer, and stops with a TypeError.",
        "Set eos_token in the tokenizer's files to the token that ends an answer.",
    ),
    "bad_pad_token": (
        "A batch is padded with this token's id, which the model or the tokenizer does not know.",
        "Leave pad_token out: the end token pads, and masks come from lengths.",
    ),
    "vocabulary_mismatch": (
        "The tokenizer has tokens beyond the rows of the embedding. Where one is used, that is an IndexError, on a GPU a device assert.",
        "Use the model's own tokenizer, or resize the embedding and save the model again.",
    ),
    "chat_template": (
        "Messages need a chat template, and text is trained without one although the model was made for turns.",
        "Messages: name a template (chat_template: FILE, that of token_length too) or take a model that has one. Text: clean with --format chat.",
    ),
    "no_rows": (
        "A split holds nothing: training cannot start, or the evaluation gives nothing without saying so.",
        "Add pairs, or set eval_share to cut some from those to train on.",
    ),
    "non_text_cell": (
        "A cell is null, a number or another thing that is neither text nor messages.",
        _CLEAN,
    ),
    "mixed_form": (
        "Text and messages stand in one set. TRL takes the form of the first row for that of all.",
        "prefdata clean --format chat makes all of them messages.",
    ),
    "empty_answer": (
        "An empty answer trains without an error: the model learns to say nothing, or to say anything rather than nothing.",
        _CLEAN,
    ),
    "empty_prompt": ("Nothing is asked in these pairs.", _CLEAN),
    "null_word": (
        "A missing cell was made into the text nan, None or null on its way, and would be trained as an answer.",
        "Read the file again with missing cells kept as such, or drop these rows.",
    ),
    "rows_of_characters": (
        "Answers of one or two characters: a text was iterated where a list of rows was meant. Its window is 1 token and its loss NaN, for nothing is left to predict.",
        "Give a list of rows, each with prompt, chosen and rejected as whole texts.",
    ),
    "last_role": (
        "An answer must end with the assistant's turn, a prompt with somebody else's; TRL trains whatever stands there.",
        _CLEAN,
    ),
    "prompt_repeated": (
        "The answers hold the prompt once more, which is then trained as the model's own words.",
        "Take the prompt out of chosen and rejected; prefdata clean reads whole conversations.",
    ),
    "image_rows": (
        "Pairs with images need a model that sees. Without it the mark of the image would be trained as text, or the image dropped.",
        "Take these pairs out, or train them with a vision model elsewhere.",
    ),
    "control_tokens": (
        "A special token that was typed in a text is read as a real one: the turn or the text ends there, and a false turn begins.",
        "Take the tokens out of the texts; prefdata audit lists them as special_token.",
    ),
    "bad_weight": (
        "The loss of a pair cannot be multiplied by this weight, or its label cannot be wrong with this probability.",
        "Mend pd_weight (0 or more) and pd_flip_prob (0 to 1), or set use_weights: false.",
    ),
    "eval_overlap": (
        "Held-out prompts are also trained on: the evaluation looks better than the model is.",
        "prefdata clean --split test=5% keeps equal prompts together, and near copies of pairs; the check also takes prompts for equal that differ in case or punctuation.",
    ),
    "template_refused": (
        "The chat template, the tokenizer or TRL raises an error on these pairs, and training would stop there.",
        "Mend the roles and messages named, or use another template (chat_template: FILE).",
    ),
    "rows_lost": (
        "TRL drops pairs whose prompt fills the window, without a word; with none left it stops at num_samples=0, and evaluate() returns nothing.",
        "Raise max_length, or clean for this window: prefdata clean ... --set token_length.tokenizer=MODEL --set token_length.max_length=WINDOW.",
    ),
    "prompt_not_prefix": (
        "The model is trained on a prompt that is not the one it will see.",
        "End prompts without a space, or use a template that renders the prompt alone as it does within the whole.",
    ),
    "cut_answers": (
        "Answers are longer than the window: their end, and the end token, are not trained.",
        "Raise max_length, or drop the long pairs.",
    ),
    "identical_after_cut": (
        "The two answers differ only behind the cut.",
        "Raise max_length, or drop these pairs (prefdata clean with token_length.tokenizer).",
    ),
    "zero_signal": (
        "Pairs with equal answers or weight 0 give loss ln 2, margin 0 and no gradient; they dilute every step and push accuracy down.",
        _CLEAN,
    ),
    "no_labels": (
        "An answer without a trained token: some losses are NaN there, and a NaN is logged as 0.",
        "Raise max_length, or drop these pairs.",
    ),
    "degenerate_length": (
        "The window leaves a few tokens of long answers: max_length was computed from something else than these texts.",
        "Raise max_length.",
    ),
    "start_tokens": (
        "A sequence must begin with one start token where the tokenizer uses one.",
        "Take the token out of the texts or the template, or put it into the template.",
    ),
    "end_tokens": (
        "An answer must end with one end token, or the model never learns to stop (or to stop twice).",
        "Take typed end tokens out of the texts, or let the template put the tokenizer's end token behind an answer.",
    ),
    "trainer_refused": (
        "TRL, transformers or peft refuses these settings.",
        "Change the setting that the message names.",
    ),
    "nothing_trained": (
        "No weight would change: loss stays ln 2 and margins 0.",
        "Look at lora_targets, or train all weights with --full.",
    ),
    "nonfinite_weights": (
        "The model as it lies on disk holds NaN or infinity.",
        "Use another copy or checkpoint of the model.",
    ),
    "batch_masks": (
        "The batch attends to padding, or has labels on it: the model learns to say padding, with a loss that is too low.",
        "Use the trainer's own collator.",
    ),
    "nonfinite_first_loss": (
        "The model says NaN or infinity of a pair before any step.",
        "Look at the pairs named, the model's weights, and dtype and precision.",
    ),
    "padding_leaks": (
        "What the model says of a sequence depends on the padding behind it, so the loss depends on the batch. Often the row of the padding token was never set.",
        "Use another pad_token, or a model whose attention masks padding.",
    ),
    "reference_differs": (
        "The model is not equal to its reference before the first step: margins begin away from 0, and so does the loss.",
        "Use reference: same, and adapters that begin as nothing.",
    ),
}  # fmt: skip
BEFORE: dict[str, Word] = {word: Word("before", means, remedy) for word, (means, remedy) in _TEXTS.items()}
