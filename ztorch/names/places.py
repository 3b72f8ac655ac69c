"""Which file of a room defines which members: classes under all their names, and ops.

`python -m tools.places --write` writes this file; `members.py` reads it.
"""

from __future__ import annotations

PLACES: dict[str, dict[str, str]] = {
    "constraints": {
        "norms": "MaxNorm MinMaxNorm UnitNorm max_norm min_max_norm unit_norm",
        "signs": "NonNeg non_neg",
    },
    "initializers": {
        "constant": "Constant Identity Ones Zeros constant identity one ones zero zeros",
        "random": "Orthogonal RandomNormal RandomUniform TruncatedNormal normal orthogonal "
            "random_normal random_uniform truncated_normal uniform",
        "spectral": "STFT stft",
        "variance_scaling": "GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal "
            "LecunUniform VarianceScaling glorot_normal glorot_uniform he_normal he_uniform "
            "lecun_normal lecun_uniform variance_scaling xavier_normal xavier_uniform",
    },
    "layers": {
        "activation": "Activation ELU LeakyReLU PReLU ReLU Softmax",
        "adaptive_pooling": "AdaptiveAveragePooling1D AdaptiveAveragePooling2D "
            "AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D "
            "AdaptiveMaxPooling3D",
        "attention": "MultiHeadAttention",
        "augmentation": "RandomCrop RandomFlip RandomTranslation",
        "bidirectional": "Bidirectional",
        "branch_scaling": "LayerScale StochasticDepth",
        "cells": "GRUCell LSTMCell SimpleRNNCell",
        "colors": "RandomColorDegeneration RandomColorJitter RandomGrayscale RandomHue "
            "RandomSaturation",
        "containers": "Identity Lambda Parallel Residual TimeDistributed",
        "conv_lstm": "ConvLSTM1D ConvLSTM2D ConvLSTM3D",
        "convolution": "Conv1D Conv2D Convolution1D Convolution2D",
        "core": "Dense Input InputLayer Rescaling",
        "einsum_dense": "EinsumDense",
        "elastic": "RandomElasticTransform",
        "embedding": "Embedding Masking PositionEmbedding RotaryEmbedding SinusoidalPosition",
        "encoded": "Encoded",
        "gated": "GRU LSTM SimpleRNN",
        "global_pooling": "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAvgPool1D "
            "GlobalAvgPool2D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPooling1D "
            "GlobalMaxPooling2D",
        "group_attention": "GroupQueryAttention",
        "histograms": "ContrastLimitedAdaptiveHistogramEqualization Equalization",
        "joining": "Concatenate Dot",
        "kernel_layer": "Kernel",
        "merge": "Add Average Maximum Minimum Multiply Subtract",
        "mixing": "CutMix MixUp",
        "normalization": "BatchNormalization GroupNormalization LayerNormalization",
        "operation": "Operation",
        "padding": "Cropping1D Cropping2D ZeroPadding1D ZeroPadding2D",
        "pixels": "RandomBrightness RandomContrast RandomErasing",
        "pooling": "AveragePooling1D AveragePooling2D AvgPool1D AvgPool2D MaxPool1D MaxPool2D "
            "MaxPooling1D MaxPooling2D",
        "preprocessing": "Normalization",
        "rand_augment": "AugMix RandAugment",
        "recomputing": "Checkpoint",
        "regularization": "ActivityRegularization AlphaDropout Dropout GaussianDropout "
            "GaussianNoise",
        "reshaping": "Flatten Permute RepeatVector Reshape",
        "resizing": "CenterCrop Resizing",
        "reversible": "ReversibleEmbedding",
        "rnn": "RNN StackedRNNCells",
        "score_attention": "AdditiveAttention Attention",
        "separable": "DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D "
            "SeparableConvolution1D SeparableConvolution2D",
        "sharpness": "RandomGaussianBlur RandomSharpness",
        "spatial_dropout": "SpatialDropout1D SpatialDropout2D SpatialDropout3D",
        "spectral": "SpectralNormalization",
        "spectrograms": "MelSpectrogram STFTSpectrogram",
        "tones": "AutoContrast RandomInvert RandomPosterization Solarization",
        "transformer": "TransformerDecoder TransformerEncoder",
        "transposed": "Conv1DTranspose Conv2DTranspose Convolution1DTranspose "
            "Convolution2DTranspose",
        "unit_scale": "RMSNormalization UnitNormalization",
        "upsampling": "UpSampling1D UpSampling2D",
        "volume_shapes": "Cropping3D GlobalAveragePooling3D GlobalAvgPool3D GlobalMaxPool3D "
            "GlobalMaxPooling3D UpSampling3D ZeroPadding3D",
        "volume_windows": "AveragePooling3D AvgPool3D Conv3D Conv3DTranspose Convolution3D "
            "Convolution3DTranspose MaxPool3D MaxPooling3D",
        "warping": "RandomPerspective RandomRotation RandomShear RandomZoom",
    },
    "losses": {
        "classification": "BCE BinaryCrossentropy CategoricalCrossentropy "
            "CategoricalGeneralizedCrossEntropy CategoricalHinge Hinge KLD KLDivergence "
            "SparseCategoricalCrossentropy SquaredHinge bce binary_crossentropy "
            "categorical_crossentropy categorical_generalized_cross_entropy categorical_hinge cce "
            "hinge kl_divergence kld scce sparse_categorical_crossentropy squared_hinge",
        "ctc": "CTC ctc",
        "focal": "BinaryFocalCrossentropy CategoricalFocalCrossentropy binary_focal_crossentropy "
            "categorical_focal_crossentropy",
        "overlap": "Dice Tversky dice tversky",
        "pairs": "Circle circle",
        "regression": "CosineSimilarity Huber LogCosh MAE MAPE MSE MSLE MeanAbsoluteError "
            "MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson "
            "cosine_similarity huber huber_loss log_cosh logcosh mae mape mean_absolute_error "
            "mean_absolute_percentage_error mean_squared_error mean_squared_logarithmic_error mse "
            "msle poisson",
    },
    "metrics": {
        "accuracy": "Accuracy BinaryAccuracy CategoricalAccuracy CosineSimilarity "
            "SparseCategoricalAccuracy SparseTopKCategoricalAccuracy TopKCategoricalAccuracy "
            "binary_accuracy categorical_accuracy cosine_similarity sparse_categorical_accuracy "
            "sparse_top_k_categorical_accuracy top_k_categorical_accuracy",
        "confusion": "FalseNegatives FalsePositives Precision Recall TrueNegatives TruePositives "
            "false_negatives false_positives precision recall true_negatives true_positives",
        "correlation": "ConcordanceCorrelation PearsonCorrelation concordance_correlation "
            "pearson_correlation",
        "curves": "AUC PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity "
            "SpecificityAtSensitivity auc precision_at_recall recall_at_precision "
            "sensitivity_at_specificity specificity_at_sensitivity",
        "f_scores": "F1Score FBetaScore f1_score fbeta_score",
        "functions": "LossMetric",
        "numbers": "R2Score RootMeanSquaredError r2_score rmse root_mean_squared_error",
        "overlap": "BinaryIoU IoU MeanIoU OneHotIoU OneHotMeanIoU binary_io_u binary_iou io_u iou "
            "mean_io_u mean_iou one_hot_io_u one_hot_iou one_hot_mean_io_u one_hot_mean_iou",
        "weighted": "WeightedMetric",
    },
    "ops": {
        "activation": "exponential gelu glu linear log_sigmoid mish sigmoid silu softplus "
            "softsign squareplus swish tanh_shrink",
        "arranging": "append argpartition diagflat dsplit dstack fliplr flipud hsplit tri "
            "unravel_index vander view vsplit",
        "attention": "attention attention_weights rotary",
        "axes": "matrix_transpose moveaxis ravel roll rot90 squeeze swapaxes",
        "blas": "gemm gemm_strided gemv",
        "blocks": "depth_to_space extract_sequences fold rearrange space_to_depth unfold",
        "convolution": "conv",
        "creation": "arange eye linspace ones zeros",
        "cropping": "crop",
        "crossentropies": "binary_crossentropy categorical_crossentropy digitize in_top_k "
            "sparse_categorical_crossentropy",
        "ctc": "ctc_decode ctc_loss",
        "cumulative": "cumprod cumsum diff",
        "curves": "convolve cov gradient interp polyval",
        "determinants": "det lu_factor slogdet",
        "division": "divide floor_divide reciprocal remainder",
        "dropping": "dropout",
        "eigen": "eigh eigvalsh",
        "einsum": "einsum",
        "elementwise": "abs add atan bitcast bitwise_and bitwise_not bitwise_or bitwise_xor cast "
            "ceil cos div equal erf exp exp2 expm1 float_power floor fma greater greater_equal "
            "less less_equal log log1p log2 maximum minimum mul mulhi neg not_equal power rem "
            "round rsqrt shift_left shift_right sign sin sqrt square stop_gradient sub tanh trunc "
            "where",
        "extremes": "argmax argmin",
        "fills": "full full_like iota ones_like zeros_like",
        "finite": "isfinite isinf isnan nan_to_num",
        "fourier": "fft fft2 ifft ifft2 irfft rfft",
        "frequencies": "fftfreq fftshift ifftshift rfftfreq",
        "gammas": "random_gamma",
        "hyperbolic": "acosh asinh atanh cosh sinh",
        "image_colors": "hsv_to_rgb rgb_to_grayscale rgb_to_hsv",
        "image_measures": "extract_patches_3d perspective_transform scale_and_translate "
            "sobel_edges ssim",
        "image_positions": "affine_transform gaussian_blur map_coordinates",
        "images": "crop_images extract_patches pad_images resize",
        "indexing": "one_hot scatter_add take take_along_axis",
        "joining": "broadcast_arrays hstack meshgrid split stack unstack vstack",
        "keras_convolution": "conv1d conv2d",
        "limits": "clip",
        "linear": "matmul rounded_to",
        "linear_algebra": "cholesky inv solve",
        "linear_pieces": "hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh soft_shrink "
            "sparse_plus sparse_sigmoid threshold",
        "logarithms": "hypot log10 logaddexp",
        "logic": "allclose array_equal isclose isin logical_and logical_not logical_or "
            "logical_xor",
        "matrices": "matrix_norm matrix_power norm",
        "measures": "average cdist corrcoef histogram logdet moments normalize psnr ptp trapezoid "
            "vdot",
        "movement": "broadcast_to expand_dims reshape transpose",
        "network_names": "adaptive_average_pool adaptive_max_pool batch_normalization correlate "
            "depthwise_conv dot_product_attention layer_normalization rms_normalization "
            "separable_conv",
        "normalization": "batch_norm layer_norm rms_norm",
        "odd_numbers": "angle conj fmax fmin gcd imag isneginf isposinf isreal lcm real "
            "saturate_cast",
        "orthogonal": "qr",
        "overlapping": "overlap_add",
        "pooling": "average_pool max_pool upsample",
        "products": "cross dot inner kron outer tensordot vecdot",
        "pseudoinverse": "condition_number lstsq matrix_rank pinv",
        "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "random": "random_bits random_normal random_truncated_normal random_uniform",
        "rectifiers": "celu elu leaky_relu relu relu6 selu",
        "reduction": "all any count_nonzero max min prod sum",
        "repeating": "repeat tile",
        "rowwise": "log_softmax logsumexp softmax sparsemax standardize",
        "segments": "multi_hot scatter scatter_update segment_max segment_min segment_prod "
            "segment_sum slice_update",
        "series": "bartlett blackman geomspace hamming hanning kaiser logspace",
        "signs": "copysign nextafter positive signbit",
        "singular": "svd svdvals",
        "slicing": "concat flip pad slice slice_by",
        "sorting": "argsort searchsorted sort top_k",
        "special": "cbrt deg2rad divide_no_nan erfc erfinv heaviside i0 ldexp logaddexp2 rad2deg "
            "sinc",
        "spectrogram": "istft stft",
        "statistics": "mean std var vector_norm",
        "transposed": "conv_transpose",
        "triangles": "diag diagonal trace tril triu",
        "triangular": "cholesky_inverse solve_triangular",
        "trigonometry": "acos asin atan2 tan",
        "update": "fused_adam_step",
        "windows": "windows",
        "without_nans": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod "
            "nanstd nansum nanvar",
    },
    "optimizers": {
        "adam": "Adam AdamW Adamax Nadam adam adamax adamw nadam",
        "adaptive": "Adadelta Adafactor Ftrl adadelta adafactor ftrl",
        "by_layer": "Lamb Muon lamb muon",
        "rmsprop": "Adagrad RMSprop adagrad rmsprop",
        "schedule_free": "ScheduleFreeAdamW schedule_free_adamw",
        "several": "LossScaleOptimizer MultiOptimizer loss_scale_optimizer multi_optimizer",
        "sgd": "Lion SGD lion sgd",
    },
    "regularizers": {
        "norms": "L1 L1L2 L2 l1 l1_l2 l2",
        "orthogonal": "OrthogonalRegularizer orthogonal_regularizer",
    },
}

# Other names of ops, each with the op's own.
OTHER_NAMES = (
    "absolute:abs amax:max amin:min arccos:acos arccosh:acosh arcsin:asin arcsinh:asinh "
    "arctan:atan arctan2:atan2 arctanh:atanh around:round array_split:split "
    "bitwise_invert:bitwise_not bitwise_left_shift:shift_left bitwise_right_shift:shift_right "
    "bmm:matmul cat:concat clamp:clip concatenate:concat conjugate:conj cumulative_prod:cumprod "
    "cumulative_sum:cumsum degrees:rad2deg empty:zeros empty_like:zeros_like eq:equal fabs:abs "
    "fix:trunc flatten:ravel floor_mod:remainder fmod:rem gather:take ge:greater_equal "
    "get_item:slice_by greater_than:greater gt:greater identity:eye invert:bitwise_not "
    "le:less_equal left_shift:shift_left less_than:less lt:less mm:matmul mod:remainder "
    "multiply:mul mv:matmul ne:not_equal negative:neg permute:transpose permute_dims:transpose "
    "pow:power radians:deg2rad repeat_interleave:repeat right_shift:shift_right rint:round "
    "subtract:sub topk:top_k true_divide:divide unbind:unstack unsqueeze:expand_dims"
)
