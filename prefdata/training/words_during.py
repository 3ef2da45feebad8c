"""The words of guards that look while a run goes on."""

from __future__ import annotations

from prefdata.training.word import Word

DURING: dict[str, Word] = {
    "nonfinite_parameter": Word(
        "during",
        "A trained weight is no finite number: everything that the model says from here on is NaN or garbage.",
        "Look at dtype and learning_rate first; train float32 weights.",
    ),
    "nonfinite_loss": Word(
        "during",
        "The loss or a log-probability of this batch is no finite number; the rows are named.",
        "Read the rows named. With finite inputs it is the type of the weights or the learning rate.",
    ),
    "nonfinite_gradient": Word(
        "during",
        "The norm of the gradient is no finite number: the next step makes the weights NaN.",
        "Look at dtype and precision first, then lower learning_rate.",
    ),
    "zero_loss": Word(
        "during",
        "The loss is exactly 0 step after step: there is no gradient any more, or there never was one.",
        "Check that pairs have a weight above 0. Otherwise the margin has run away: lower learning_rate.",
    ),
    "no_signal": Word(
        "during",
        "Chosen and rejected have exactly the same probability in every pair, so there is nothing to learn from.",
        "Look for pairs with equal answers, and for answers that max_length cuts before they differ.",
    ),
    "margin_explodes": Word(
        "during",
        "The margin is far beyond what a preference can mean: the model separates the answers by destroying both.",
        "Lower learning_rate by 10 to 100 times, or train adapters.",
    ),
    "loss_diverges": Word(
        "during",
        "The loss has risen far above its start and stays there.",
        "Lower learning_rate by 10 times; then look at the labels.",
    ),
    "loss_stuck": Word(
        "during",
        "After the warm-up the model still says what its reference says: the loss stays where it began.",
        "Raise learning_rate (about 5e-7 for all weights, 1e-5 for adapters), check that float32 weights are trained and that the answers of a pair differ within max_length.",
    ),
    "loss_spike": Word(
        "during",
        "The loss of one step is far above its trend.",
        "Look at the gradient norm and at the pairs of this step; lower max_grad_norm or learning_rate. on_spike=rollback goes back to the last checkpoint with a tenth of the rate.",
    ),
    "loss_oscillates": Word(
        "during",
        "The loss jumps up and down about its trend by as much as it could ever fall.",
        "Lower learning_rate, or raise batch_size.",
    ),
    "likelihood_falls": Word(
        "during",
        "Chosen answers grow less likely along with the rejected ones. DPO is known to do so; far on, the model says something else altogether.",
        "Lower learning_rate, raise beta, add the loss of the chosen answer (loss_type sigmoid,sft), and take out pairs with nearly equal answers.",
    ),
    "likelihood_lost": Word(
        "during",
        "Each token of the chosen answers is 20 times less likely than before training: the model is being destroyed.",
        "Lower learning_rate by 10 times or more.",
    ),
    "accuracy_at_once": Word(
        "during",
        "Nearly every pair is right before the learning rate can have done anything: one simple feature decides them all, such as a phrase, the length, or a label that leaks.",
        "Read label_shortcut in the audit report and compare a few pairs side by side.",
    ),
    "first_loss_off": Word(
        "during",
        "At the first step the model is not its reference: margins measure something else than what is learnt.",
        "Check reference, and that nothing loads other weights.",
    ),
    "entropy_collapse": Word(
        "during",
        "The model is nearly certain of every next token: it has lost its variety.",
        "Lower learning_rate or raise beta, and read the generations.",
    ),
    "memory_near_limit": Word(
        "during",
        "Nearly all memory is taken.",
        "Lower micro_batch_size (the batch stays as it is), or set gradient_checkpointing.",
    ),
    "out_of_memory": Word(
        "during",
        "Memory ran out. With half the pairs at once and twice the accumulation a step stays what it was.",
        "Set micro_batch_size to what worked. At 1: lower max_length, train adapters, set gradient_checkpointing.",
    ),
    "early_stop": Word(
        "during",
        "What was asked for by early_stop has come about; the run ends as if it were complete.",
        "Nothing. Change early_stop or patience to go on for longer.",
    ),
    "trainer_error": Word(
        "during",
        "A library failed in the middle of training; the first line of what it says stands here.",
        "With --resume the run goes on from its last checkpoint, once the cause is gone.",
    ),
}
