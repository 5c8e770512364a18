"""What selection did to the data: estimates with confidence sequences, contrasts, exposure, calibration, words."""
