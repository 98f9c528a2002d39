"""TorchMetrics on the device: a metric moves there like a module, and computes there."""

import torch
import torchmetrics

device = torch.accelerator.current_accelerator() or torch.device("cpu")

metrics = torchmetrics.MetricCollection(
    {
        "accuracy": torchmetrics.classification.MulticlassAccuracy(num_classes=4),
        "f1": torchmetrics.classification.MulticlassF1Score(num_classes=4),
        "confusion": torchmetrics.classification.MulticlassConfusionMatrix(num_classes=4),
        "loss": torchmetrics.MeanMetric(),
    }
)
on_device = metrics.clone().to(device)
generator = torch.Generator().manual_seed(0)
for _ in range(5):
    scores = torch.randn(32, 4, generator=generator)
    labels = torch.randint(4, (32,), generator=generator)
    value = torch.nn.functional.cross_entropy(scores, labels)
    for collection, where in ((metrics, torch.device("cpu")), (on_device, device)):
        for name, metric in collection.items(keep_base=True):
            metric.update(*([value.to(where)] if name == "loss" else [scores.to(where), labels.to(where)]))

expected, result = metrics.compute(), on_device.compute()
for name, answer in result.items():
    assert answer.device.type == device.type, f"{name} is on {answer.device}"
    torch.testing.assert_close(answer.cpu(), expected[name])
print(f"accuracy {result['accuracy'].item():.3f}, computed on {result['accuracy'].device}")
