"""The kernels of the backend `triton`. Importing this module imports triton.

A program sums a block of rows over a tile of channels: every row walks its edges in their grouped order, in registers
and in the accumulation dtype. There are no atomics, and every sum has one order, so that results repeat bit for bit.

A long row must not delay the others. A row with more than SEGMENT edges is left out of its block. Instead, the grouped
edges are divided into windows of SEGMENT edges, and each window sums its part of the long rows. A window meets at most
two long rows, because none fits inside: the row of its first edge, and the row of its last edge if that begins later.
So window s has the slots 2s and 2s + 1 for partial sums, and `combine` adds these in the order of the edges.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source. Their arguments are pointers and scalars of Triton, without types.

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

_SQRT_HALF = tl.constexpr(0.7071067811865476)
_INV_SQRT_2PI = tl.constexpr(0.3989422804014327)
_SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)
_GELU_CUBIC = tl.constexpr(0.044715)
_SOFTPLUS_THRESHOLD = tl.constexpr(20.0)


@triton.jit
def forward(
    ptr, nodes, edges, rows, num_edges, search_steps,
    query, query_stride, key, key_stride, value, value_stride, edge, edge_stride, edge_type,
    edge_weight, target_weight, source_weight,
    out, slopes, partial_out, partial_slopes,
    width, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    SEGMENT: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """out_u = a_u * sum over v in N(u) of w_uv * b_v * sigma(z), slopes_u (unless None) the same with sigma'.

    Unless None, the row of a value multiplies sigma and sigma', channel by channel.
    """
    ACC: tl.constexpr = tl.float64 if query.dtype.element_ty == tl.float64 else tl.float32
    row, place, whole, live, begin, length = _spans(ptr, rows, num_edges, search_steps, SEGMENT, ROWS)
    channel = tl.program_id(1).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    stored = live[:, None] & (channel < width)
    own = tl.load(query + row[:, None] * query_stride + channel, mask=stored, other=0.0).to(ACC)
    total = tl.zeros([ROWS, CHANNELS], ACC)
    total_slope = tl.zeros([ROWS, CHANNELS], ACC)
    for i in range(tl.max(length, axis=0)):
        here = i < length
        node, place_of_edge, mask = _entry(nodes, edges, begin + i, here, channel, width)
        other = tl.load(key + node[:, None] * key_stride + channel, mask=mask, other=0.0)
        z = _with_edge_term(own + other.to(ACC), edge, edge_stride, edge_type, place_of_edge, here, channel, mask)
        weight = _weight(edge_weight, place_of_edge, source_weight, node, here, ROWS, ACC)
        gate, slope = _sigma(z, ACTIVATION, SLOPE)
        if value is not None:
            sent = tl.load(value + node[:, None] * value_stride + channel, mask=mask, other=0.0).to(ACC)
            gate, slope = gate * sent, slope * sent
        total += tl.where(mask, weight * gate, 0.0)
        total_slope += tl.where(mask, weight * slope, 0.0)
    at = place[:, None] * width + channel
    if partial_out is not None:
        tl.store(partial_out + at, total, mask=stored & (whole == 0))
        if slopes is not None:
            tl.store(partial_slopes + at, total_slope, mask=stored & (whole == 0))
    if target_weight is not None:
        scale = tl.load(target_weight + row, mask=live, other=0.0).to(ACC)[:, None]
        total *= scale
        total_slope *= scale
    tl.store(out + at, total, mask=stored & (whole != 0))
    if slopes is not None:
        tl.store(slopes + at, total_slope, mask=stored & (whole != 0))


@triton.jit
def backward(
    ptr, nodes, edges, rows, num_edges, search_steps,
    grad, grad_stride, own, own_stride, other, other_stride, edge, edge_stride, edge_type,
    edge_weight, own_weight, other_weight,
    value, value_stride, divisor_grad,
    grad_own, partial_grad, grad_value, partial_value, grad_edge, grad_weight,
    width, VALUE_OF_EDGE: tl.constexpr, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    SEGMENT: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """grad_own_v = own_weight_v * sum over the edges of v of w * other_weight_u * grad_u * sigma'(z).

    Unless None, `grad_edge` gets one row per edge, and row t of `grad_weight` `[tiles, E]` the part of tile t of every
    edge weight's gradient.

    With a value, grad_u is multiplied by the value, and the row of u in `divisor_grad` (unless None) is added to it.
    The value is a row of the group, or with VALUE_OF_EDGE the row of the edge's type. `grad_value` gets its gradient.
    """
    ACC: tl.constexpr = tl.float64 if other.dtype.element_ty == tl.float64 else tl.float32
    row, place, whole, live, begin, length = _spans(ptr, rows, num_edges, search_steps, SEGMENT, ROWS)
    channel = tl.program_id(1).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    stored = live[:, None] & (channel < width)
    own_row = tl.load(own + row[:, None] * own_stride + channel, mask=stored, other=0.0).to(ACC)
    scale = tl.full([ROWS], 1.0, ACC)
    if own_weight is not None:
        scale = tl.load(own_weight + row, mask=live, other=0.0).to(ACC)
    total = tl.zeros([ROWS, CHANNELS], ACC)
    total_value = tl.zeros([ROWS, CHANNELS], ACC)
    for i in range(tl.max(length, axis=0)):
        here = i < length
        node, place_of_edge, mask = _entry(nodes, edges, begin + i, here, channel, width)
        other_row = tl.load(other + node[:, None] * other_stride + channel, mask=mask, other=0.0).to(ACC)
        z = _with_edge_term(own_row + other_row, edge, edge_stride, edge_type, place_of_edge, here, channel, mask)
        gate, slope = _sigma(z, ACTIVATION, SLOPE)
        incoming = tl.load(grad + node[:, None] * grad_stride + channel, mask=mask, other=0.0).to(ACC)
        weight = _weight(edge_weight, place_of_edge, other_weight, node, here, ROWS, ACC)
        if value is not None:
            total_value += tl.where(mask, incoming * weight * gate, 0.0)
            sender = _sender(row, edge_type, place_of_edge, here, VALUE_OF_EDGE)
            incoming *= tl.load(value + sender[:, None] * value_stride + channel, mask=mask, other=0.0).to(ACC)
            if divisor_grad is not None:
                incoming += tl.load(divisor_grad + node[:, None] * width + channel, mask=mask, other=0.0).to(ACC)
        grad_z = incoming * weight * slope
        total += tl.where(mask, grad_z, 0.0)
        if grad_edge is not None:
            tl.store(grad_edge + place_of_edge[:, None] * width + channel, grad_z * scale[:, None], mask=mask)
        if grad_weight is not None:
            rank_one = _weight(None, place_of_edge, other_weight, node, here, ROWS, ACC) * scale[:, None]
            part = tl.sum(tl.where(mask, incoming * rank_one * gate, 0.0), axis=1)
            tl.store(grad_weight + tl.program_id(1).to(tl.int64) * num_edges + place_of_edge, part, mask=here)
    at = place[:, None] * width + channel
    if partial_grad is not None:
        tl.store(partial_grad + at, total, mask=stored & (whole == 0))
        if grad_value is not None:
            tl.store(partial_value + at, total_value, mask=stored & (whole == 0))
    tl.store(grad_own + at, total * scale[:, None], mask=stored & (whole != 0))
    if grad_value is not None:
        tl.store(grad_value + at, total_value * scale[:, None], mask=stored & (whole != 0))


@triton.jit
def combine(
    ptr, rows, search_steps, weight,
    partial, out, partial_slopes, slopes,
    width, SEGMENT: tl.constexpr, WINDOWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The sums of the long rows from the parts of their windows. The program of a row's first window computes it."""
    ACC: tl.constexpr = partial.dtype.element_ty
    window = tl.program_id(0).to(tl.int64)
    row = _row_of(window * SEGMENT, ptr, rows, search_steps)
    begin, end = tl.load(ptr + row).to(tl.int64), tl.load(ptr + row + 1).to(tl.int64)
    first, last = begin // SEGMENT, (end - 1) // SEGMENT
    is_first = (window - 1) * SEGMENT < begin
    if is_first & (end - begin > SEGMENT):
        channel = tl.program_id(1).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
        total = tl.zeros([WINDOWS, CHANNELS], ACC)
        total_slope = tl.zeros([WINDOWS, CHANNELS], ACC)
        for block in range(0, last - first + 1, WINDOWS):
            here = first + block + tl.arange(0, WINDOWS)
            slot = 2 * here + (begin > here * SEGMENT).to(tl.int64)
            mask = (here <= last)[:, None] & (channel < width)
            at = slot[:, None] * width + channel
            total += tl.load(partial + at, mask=mask, other=0.0)
            if slopes is not None:
                total_slope += tl.load(partial_slopes + at, mask=mask, other=0.0)
        scale = tl.full([], 1.0, ACC)
        if weight is not None:
            scale = tl.load(weight + row).to(ACC)
        at = row * width + channel
        tl.store(out + at, tl.sum(total, axis=0)[None, :] * scale, mask=channel < width)
        if slopes is not None:
            tl.store(slopes + at, tl.sum(total_slope, axis=0)[None, :] * scale, mask=channel < width)


@triton.jit
def _spans(ptr, rows, num_edges, search_steps, SEGMENT: tl.constexpr, ROWS: tl.constexpr):
    """Which edges this program's lanes sum up, for which row, and at which place of the output that goes.

    The first programs have whole rows, placed at themselves; the others parts of long rows, placed at their slots.
    """
    block = tl.program_id(0).to(tl.int64)
    row_blocks = tl.cdiv(rows, ROWS)
    lane = tl.arange(0, ROWS)
    whole = block < row_blocks
    if whole:
        place = block * ROWS + lane
        row = place
        live = row < rows
        begin = tl.load(ptr + row, mask=live, other=0).to(tl.int64)
        end = tl.load(ptr + row + 1, mask=live, other=0).to(tl.int64)
        live = live & (end - begin <= SEGMENT)
    else:
        place = (block - row_blocks) * ROWS + lane
        first = (place // 2) * SEGMENT
        # Lanes after the last window look up the last edge and stay idle.
        last = tl.minimum(first + SEGMENT, num_edges) - 1
        row = _row_of(tl.where(place % 2 == 0, tl.minimum(first, last), last), ptr, rows, search_steps)
        begin, end = tl.load(ptr + row).to(tl.int64), tl.load(ptr + row + 1).to(tl.int64)
        live = (first <= last) & (end - begin > SEGMENT) & ((place % 2 == 0) | (begin > first))
        begin, end = tl.maximum(begin, first), tl.minimum(end, last + 1)
    # At most SEGMENT, so that the loop counts in 32 bits.
    length = tl.where(live, end - begin, 0).to(tl.int32)
    return row, place, whole, live, begin, length


@triton.jit
def _row_of(position, ptr, rows, search_steps):
    """The row that has the edge at this position, by bisection: ptr[low] <= position < ptr[high]."""
    low = position * 0
    high = low + rows
    for _ in range(search_steps):
        middle = (low + high) // 2
        left = tl.load(ptr + middle).to(tl.int64) > position
        low = tl.where(left, low, middle)
        high = tl.where(left, middle, high)
    return low


@triton.jit
def _entry(nodes, edges, at, here, channel, width):
    """The far end of an edge, its place in the input, and which of its channels there are."""
    node = tl.load(nodes + at, mask=here, other=0).to(tl.int64)
    place_of_edge = tl.load(edges + at, mask=here, other=0).to(tl.int64)
    return node, place_of_edge, here[:, None] & (channel < width)


@triton.jit
def _sender(row, edge_type, place_of_edge, here, VALUE_OF_EDGE: tl.constexpr):
    """The row of the value: that of the group, or that of the edge's type."""
    if VALUE_OF_EDGE:
        row = tl.load(edge_type + place_of_edge, mask=here, other=0).to(tl.int64)
    return row


@triton.jit
def _with_edge_term(z, edge, edge_stride, edge_type, place_of_edge, here, channel, mask):
    """z + e, with e one row per edge, or a table's row of the edge's type."""
    if edge is not None:
        row = place_of_edge
        if edge_type is not None:
            row = tl.load(edge_type + place_of_edge, mask=here, other=0).to(tl.int64)
        z += tl.load(edge + row[:, None] * edge_stride + channel, mask=mask, other=0.0).to(z.dtype)
    return z


@triton.jit
def _weight(edge_weight, place_of_edge, node_weight, node, here, ROWS: tl.constexpr, ACC: tl.constexpr):
    """The factors that are present, as a column."""
    weight = tl.full([ROWS], 1.0, ACC)
    if edge_weight is not None:
        weight *= tl.load(edge_weight + place_of_edge, mask=here, other=0.0).to(ACC)
    if node_weight is not None:
        weight *= tl.load(node_weight + node, mask=here, other=0.0).to(ACC)
    return weight[:, None]


@triton.jit
def _sigma(z, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr):
    """sigma(z) and sigma'(z), as in `sirgcn.ops.activation`. The compiler drops the one that is not used."""
    if ACTIVATION == "identity":
        value, slope = z, tl.zeros_like(z) + 1
    elif ACTIVATION == "relu":
        # Not z > 0, so that NaN stays NaN.
        value, slope = tl.where(z <= 0, 0.0, z), (z > 0).to(z.dtype)
    elif ACTIVATION == "leaky_relu":
        value, slope = tl.where(z > 0, z, z * SLOPE), tl.where(z > 0, 1.0, tl.zeros_like(z) + SLOPE)
    elif ACTIVATION == "elu":
        power = tl.exp(tl.where(z > 0, 0.0, z))
        # exp(z) - 1 without cancellation near 0.
        value, slope = tl.where(z > 0, z, _tanh(z * 0.5) * (power + 1)), power
    elif ACTIVATION == "gelu":
        normal = 0.5 * (1 + tl.erf(z * _SQRT_HALF))
        value, slope = z * normal, normal + z * tl.exp(-0.5 * z * z) * _INV_SQRT_2PI
    elif ACTIVATION == "gelu_tanh":
        t = _tanh((z + z * z * z * _GELU_CUBIC) * _SQRT_2_OVER_PI)
        inner = (1 + z * z * (3 * _GELU_CUBIC)) * _SQRT_2_OVER_PI
        value, slope = 0.5 * z * (1 + t), 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner
    elif ACTIVATION == "silu":
        s = _sigmoid(z)
        value, slope = z * s, s * (1 + z * (1 - s))
    elif ACTIVATION == "tanh":
        t = _tanh(z)
        value, slope = t, 1 - t * t
    elif ACTIVATION == "sigmoid":
        s = _sigmoid(z)
        value, slope = s, s * (1 - s)
    elif ACTIVATION == "square":
        value, slope = z * z, z + z
    else:
        tl.static_assert(ACTIVATION == "softplus", "no kernel for this activation")
        linear = z > _SOFTPLUS_THRESHOLD
        value = tl.where(linear, z, tl.where(z > 0, z, 0.0) + _log1p(tl.exp(-tl.abs(z))))
        slope = tl.where(linear, 1.0, _sigmoid(z))
    return value, slope


@triton.jit
def _sigmoid(z):
    return 1 / (1 + tl.exp(-z))


@triton.jit
def _tanh(z):
    """tanh to the last digits of float32 and float64: the language has none that the interpreter knows too.

    Near 0 the rational function of the Cephes library (S. L. Moshier, tanh.c), else the exponential form.
    """
    s = z * z
    numerator = (-9.64399179425052238628e-1 * s - 9.92877231001918586564e1) * s - 1.61468768441708447952e3
    denominator = ((s + 1.12811678491632931402e2) * s + 2.23548839060100448583e3) * s + 4.84406305325125486048e3
    small = z + z * s * (numerator / denominator)
    power = tl.exp(-2 * tl.abs(z))
    large = 1 - 2 * power / (1 + power)
    return tl.where(tl.abs(z) < 0.625, small, tl.where(z < 0, -large, large))


@triton.jit
def _log1p(x):
    """log(1 + x) for 0 <= x <= 1, from the series of 2 artanh(s) with s = x / (2 + x) <= 1/3."""
    # The first term left out is at most 9^-TERMS / (2 TERMS + 1), less than the dtype's rounding.
    TERMS: tl.constexpr = 16 if x.dtype == tl.float64 else 8
    s = x / (2 + x)
    total = tl.zeros_like(x)
    for k in tl.static_range(TERMS):
        total = total * (s * s) + 1.0 / (2 * (TERMS - k) - 1)
    return 2 * s * total
