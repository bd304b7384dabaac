/* The message network: how its work is divided into blocks and threads, and where its scratch lies. The division depends on the
   widths and on the edges, never on the threads, so that sums have the same bits for any number of threads. Scratch grows with the
   widths and the threads, never with the edges. */
#include "memory.h"
#include "network.h"
#include "product.h"
#include "threads.h"

/* Blocks are multiples of the rows of every kernel (4, 6, 8 and 12). z, its pre-activation and y of a block need at most half a
   megabyte, which is half of a usual second cache. Blocks of wide rows have at least 96 rows, because dW would otherwise be read and
   written too often. */
#define ROW_STEP 24
#define MOST_ROWS 240
#define LEAST_ROWS 96
#define BLOCK_BYTES (512 << 10)
/* Enough items to balance any load, and few enough that their rows need little memory. */
#define MOST_ITEMS 1024
#define MOST_SLOTS 16
#define SLOT_BYTES (16 << 20)
/* From this mean number of neighbours on, the winners of max are followed one by one. Measured for 16 to 512 channels: 3 to 4 if
   rows have some vectors and W and its gradient stay in the second cache, otherwise 8 to 12. */
#define WINNERS_DEGREE 4
#define WINNERS_DEGREE_NARROW_OR_LARGE 10

typedef struct {
    Network *net;
    const NetworkKernels *kernels;
    int real, threads, winners;
    Scratch *scratches;
    int64_t columns; /* of one task that adds rows to nodes */
} Call;

static void forward_task(void *context, int64_t item, int worker) {
    const Call *call = context;
    call->kernels->forward(call->net, item, &call->scratches[worker]);
}

static void backward_task(void *context, int64_t slot, int worker) {
    const Call *call = context;
    (call->winners ? call->kernels->winners : call->kernels->backward)(call->net, slot, &call->scratches[worker]);
}

static void scatter_task(void *context, int64_t block, int worker) {
    const Call *call = context;
    const int64_t begin = block * call->columns;
    (void)worker;
    call->kernels->scatter(call->net, begin, least(begin + call->columns, call->net->d_in));
}

/* Rows in whole vectors, at an odd number of cache lines from each other: a column of them is spread over all sets. */
static int64_t stride_of(int64_t width, int real) { return (rounded_up(width * real, LINE) / LINE | 1) * LINE / real; }

static void lay_out_blocks(Network *net, int64_t lanes, int real) {
    net->in_width = padded_width(net->d_in, lanes);
    net->out_width = padded_width(net->d_out, lanes);
    net->in_stride = stride_of(net->in_width, real);
    /* dy is read by the rows of a kernel. */
    net->out_stride = stride_of(most(net->out_width, rounded_up(net->d_out, ROW_STEP)), real);
    const int64_t fitting = BLOCK_BYTES / ((2 * net->in_stride + net->out_stride) * real);
    net->rows = least(most(fitting / ROW_STEP * ROW_STEP, LEAST_ROWS), MOST_ROWS);
    /* As wide on every instruction set. */
    net->mark_stride = rounded_up(net->d_out * real, LINE) / real;
    net->mark_width = least(net->out_width, net->mark_stride);
    net->mark_groups = (net->rows + 8 * real - 1) / (8 * real);
}

int64_t marks_size(Network *net, const NetworkKernels *kernels, int real) {
    lay_out_blocks(net, kernels->lanes, real);
    if (net->second != RELU && net->second != LEAKY_RELU) return 0;
    const int64_t block = net->mark_groups * net->mark_stride * real, blocks = (net->edges + net->rows - 1) / net->rows;
    const int64_t kept = least(blocks, net->targets * net->d_out * real / 2 / block);
    net->marked = kept * net->rows;
    return kept * block;
}

static void lay_out(Call *call) {
    Network *net = call->net;
    marks_size(net, call->kernels, call->real);
    if (!net->marks) net->marked = 0;
    const int64_t blocks = (net->edges + net->rows - 1) / net->rows;
    net->item = net->rows * ((blocks + MOST_ITEMS - 1) / MOST_ITEMS);
    net->num_items = (net->edges + net->item - 1) / net->item;
    net->slot_size = rounded_up(net->d_out, ROW_STEP) * net->in_width;
    net->slots = most(4, least(MOST_SLOTS, SLOT_BYTES / (net->slot_size * call->real)));
    net->capacity = call->winners ? most(net->rows, net->d_out) : net->rows;
    for (net->table_size = 16; net->table_size < 2 * net->d_out;) net->table_size *= 2;
    call->columns = rounded_up((net->d_in + call->threads - 1) / call->threads, LINE / call->real);
}

static void take_memory(Call *call, Memory *memory, int backward) {
    Network *net = call->net;
    const int64_t real = call->real, d_in = net->d_in, d_out = net->d_out;
    net->shift = take_zeros(memory, net->out_width * real);
    if (!backward || (net->second != IDENTITY && net->marked < net->edges)) net->packed = take(memory, net->out_width * d_in * real);
    if (!backward) {
        net->partial = take_zeros(memory, net->num_items * d_out * real);
        if (net->is_max) net->partial_winner = take(memory, net->num_items * d_out * real);
    } else {
        const int64_t rows = net->slots * net->capacity;
        if (call->winners)
            net->plain = take_zeros(memory, d_out * net->in_width * real);
        else
            net->packed_back = take(memory, net->in_width * d_out * real);
        net->slot_weight = take_zeros(memory, net->slots * net->slot_size * real);
        net->slot_bias = take_zeros(memory, net->slots * net->out_width * real);
        net->tile = take(memory, rows * net->in_stride * real);
        net->tile_target = take(memory, 3 * rows * sizeof(int64_t));
        net->tile_source = net->tile_target + rows;
        net->tile_type = net->tile_source + rows;
        net->tile_count = take(memory, net->slots * sizeof(int64_t));
        net->bounds = take(memory, (net->slots + 1) * sizeof(int64_t));
    }
    call->scratches = take_zeros(memory, call->threads * sizeof(Scratch));
    /* The first thread's buffers, and those of the others behind them. */
    const int64_t z = net->rows * net->in_stride * real, y = net->rows * net->out_stride * real;
    const int64_t row = rounded_up(net->out_width * real, LINE), target = rounded_up(net->rows * sizeof(int64_t), LINE);
    const int64_t ints = rounded_up((net->table_size + 4 * (d_out + 1)) * sizeof(int32_t), LINE);
    const int64_t size = 2 * z + y + row + target + ints;
    char *buffers = take_zeros(memory, call->threads * size);
    for (int i = 0; !memory->failed && i < call->threads; i++, buffers += size) {
        Scratch *scratch = &call->scratches[i];
        scratch->z = buffers;
        /* The slopes of these two can be read off z. */
        scratch->pre = !call->winners && (net->first == IDENTITY || net->first == RELU) ? buffers : buffers + z;
        scratch->y = buffers + 2 * z;
        scratch->row = (char *)scratch->y + y;
        scratch->target = (int64_t *)((char *)scratch->row + row);
        scratch->table = (int32_t *)((char *)scratch->target + target);
        scratch->number = scratch->table + net->table_size;
        scratch->place_of = scratch->number + d_out;
        scratch->begin = scratch->place_of + d_out;
        scratch->order = scratch->begin + d_out + 1;
    }
}

/* The next tile: blocks of `rows` edges from edge `from` on, or of targets with at most `capacity` winners. Gives its end. */
static int64_t cut_tile(Call *call, int64_t from) {
    Network *net = call->net;
    for (int64_t slot = 0; slot < net->slots; slot++) {
        net->bounds[slot] = from;
        if (!call->winners) {
            from = least(from + net->rows, net->edges);
            continue;
        }
        for (int64_t room = net->capacity; from < net->targets; from++) {
            const int64_t start = index_at(net->ptr, net->wide_index, from);
            room -= least(index_at(net->ptr, net->wide_index, from + 1) - start, net->d_out);
            if (room < 0) break;
        }
    }
    return net->bounds[net->slots] = from;
}

static void forward(Call *call) {
    run(forward_task, call, call->net->num_items, call->threads);
    call->kernels->merge(call->net);
}

static void backward(Call *call) {
    Network *net = call->net;
    const int64_t end = call->winners ? net->targets : net->edges;
    for (int64_t from = 0; from < end;) {
        from = cut_tile(call, from);
        /* Past the end a tile's last blocks are empty. */
        memset(net->tile_count, 0, net->slots * sizeof(int64_t));
        int64_t filled = 0;
        while (filled < net->slots && net->bounds[filled] < net->bounds[filled + 1]) filled++;
        run(backward_task, call, filled, call->threads);
        if (net->grad_query || net->grad_key || net->grad_term)
            run(scatter_task, call, (net->d_in + call->columns - 1) / call->columns, call->threads);
    }
    call->kernels->sum_slots(net);
}

static int follows_winners(const Network *net, int real) {
    const int fits = net->d_in >= 32 && 2 * net->d_in * net->d_out * real <= 2 * BLOCK_BYTES;
    const int64_t degree = fits ? WINNERS_DEGREE : WINNERS_DEGREE_NARROW_OR_LARGE;
    return net->is_max && net->second == IDENTITY && net->edges >= degree * net->targets;
}

int run_network(Network *net, const NetworkKernels *kernels, int real, int is_backward, int threads) {
    if (net->edges == 0 || net->d_out == 0) return 0;
    Call call = {.net = net, .kernels = kernels, .real = real, .threads = threads};
    call.winners = is_backward && follows_winners(net, real);
    Memory memory = {0};
    lay_out(&call);
    take_memory(&call, &memory, is_backward);
    if (!memory.failed) {
        kernels->pack(net);
        if (is_backward)
            backward(&call);
        else
            forward(&call);
    }
    give_back(&memory);
    return memory.failed ? -1 : 0;
}
