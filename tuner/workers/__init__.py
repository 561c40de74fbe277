"""Several hosts on one search, through Optuna's RDB storage."""
