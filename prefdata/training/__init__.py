"""The DPO stage: settings, pre-flight checks, TRL's trainer with weights and guards, monitors, evaluation."""
