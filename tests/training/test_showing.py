"""A notebook's tables: the epochs in words, and at the end what was measured."""

import records

from helpers.training import showing


def test_the_summary_has_the_figures_of_the_record() -> None:
    content = records.make("PyTorch")
    said = showing.summary(content).iloc[:, 0]
    rate = content["synthetic"]["images_per_second"]
    assert said["images/s, synthetic"].startswith(f"{rate:,.0f} (")
    assert f"{content['test']['mean_auc']:.3f}" in said["mean test AUC"]
    assert "pass" in said["fairness check"]
