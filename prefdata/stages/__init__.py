"""One question a file; the file's name is the stage's name."""
