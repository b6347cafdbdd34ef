"""An interval from landed files to answers, truth, history and quality, beside what others take to read the files."""
