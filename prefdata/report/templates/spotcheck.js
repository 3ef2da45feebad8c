// the spot-check
