"""What scripts/train_eagle3_draft.py and scripts/make_real_pair.py are made of."""
