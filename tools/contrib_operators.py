"""Operators of ONNX Runtime's domain com.microsoft as a Markdown table: those that are converted, and why the others are not.

    python -m tools.contrib_operators

What is converted is read from the frontend's registry. The reasons stand here; a test holds them against the operators that the installed ONNX Runtime
registers, so that a new one needs a converter or a reason. The site's hook puts the table in the place of its mark in docs/onnx.md.
"""

from __future__ import annotations

from tec_onnx import operators

DOMAIN = "com.microsoft"
MARK = "<!-- contrib operators -->"

# Why an operator is refused -> the operators.
REASONS = {
    "not written yet; ONNX Runtime's CPU provider runs it": """
        BifurcationDetector ConvTransposeWithDynamicPads CropAndResize
        EngramGate GatedDeltaNet GatherPacked HyperConnectionPostMix HyperConnectionPreMix
        MatMulFpQ4 MaxpoolWithMask MoEGroupRouter MurmurHash3 NGramHashMapping NGramRepeatBlock
        VarlenCausalConvWithState VarlenNGramHashMapping WordConvEmbedding DynamicTimeWarping AttnLSTM""",
    "a loop of generation with its model inside; ONNX Runtime's generation library runs such loops outside the model":
        "BeamSearch GreedySearch Sampling WhisperBeamSearch",
    "takes a sparse tensor, a kind of value that tec does not have": "SparseToDenseMatMul",
    "an example of ONNX Runtime's own tests": "SampleOp",
    "holds a model compiled for another device": "EPContext Snpe",
    "of training": "BiasDropout BitmaskBiasDropout BitmaskDropout IsAllFinite",
    "holds a call back into PyTorch": "TorchEmbedding",
    "not written yet; ONNX Runtime's CPU provider has no kernel to check its values against": """
        ConvStateReplay DecoderAttention DecoderMaskedSelfAttention DequantizeBFP DequantizeWithOrder
        DynamicSparseAttention FusedMatMulActivation GatedDeltaNetStateReplay GemmFloat8
        HyperConnectionLowRankMix LongformerAttention Mamba2Verify MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight
        MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MoEPacked PackedAttention
        PackedMultiHeadAttention PackedSparseAttentionIndexer PackedSparseAttentionIndexerMerge PagedAttention QOrderedAttention QOrderedGelu
        QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP QuantizeWithOrder RMSNormRotary
        RemovePadding RestorePadding RouterGateUpProj SparseAttentionIndexer SparsePagedAttention
        SpeculativePrefixCommit""",
}  # fmt: skip


def table() -> str:
    """A row for the operators that are converted, and one for each reason."""
    converted = [n.removeprefix(f"{DOMAIN}.") for n, how in operators().items() if n.startswith(f"{DOMAIN}.") and how != "no"]  # fmt: skip
    groups = [("✓", sorted(converted)), *((reason, sorted(names.split())) for reason, names in REASONS.items())]
    rows = [f"| {said} | {len(names)} | {', '.join(names)} |" for said, names in groups]
    return "\n".join(["| support | number | operators |", "| --- | --- | --- |", *rows])


def with_table(markdown: str) -> str:
    """A page with the table in the place of its mark."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown


if __name__ == "__main__":
    print(table())
