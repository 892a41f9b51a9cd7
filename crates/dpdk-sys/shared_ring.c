/* Shared-memory rings: packet buffers passed to another process, which maps them at the same addresses. */
#define _GNU_SOURCE
#include <string.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_ring.h>
#include "shim.h"

#define MAGIC 0x626f6e6473746f6eULL
/* The rings of a queue: packets to the client, packets to the server, empty buffers for the client. */
enum { TO_CLIENT, TO_SERVER, REFILL, RINGS };

/* The memory that both sides map besides the packets. Rings are given by their offset from the start of the region. */
struct bs_region {
	uint64_t magic, size;
	uint32_t queues, pool_size;
	uint64_t freed, ring[BS_MAX_QUEUES][RINGS];
	/* By queue: 1 if the client waits for packets. */
	struct { uint32_t flag; } __rte_cache_aligned waits[BS_MAX_QUEUES];
	/* The pool that buffers name while the client may hold them: freeing one enqueues it on the `freed` ring. */
	struct rte_mempool proxy;
};

static int proxy_enqueue(struct rte_mempool *mp, void *const *at, unsigned n)
{
	/* the ring has room for all buffers that can be outstanding */
	return rte_ring_mp_enqueue_bulk(mp->pool_data, at, n, NULL) == n ? 0 : -ENOBUFS;
}
static int proxy_alloc(struct rte_mempool *mp) { return -ENOTSUP; }
static int proxy_dequeue(struct rte_mempool *mp, void **at, unsigned n) { return -ENOBUFS; }
static unsigned proxy_count(const struct rte_mempool *mp) { return 0; }

static const struct rte_mempool_ops proxy_ops = {
	.name = "bondstone_shared_ring",
	.alloc = proxy_alloc,
	.enqueue = proxy_enqueue,
	.dequeue = proxy_dequeue,
	.get_count = proxy_count,
};
RTE_MEMPOOL_REGISTER_OPS(proxy_ops);

static size_t ring_size(unsigned n) { return RTE_ALIGN_CEIL(rte_ring_get_memsize(rte_align32pow2(n + 1)), RTE_CACHE_LINE_SIZE * 2); }

size_t bs_region_size(unsigned queues, unsigned depth, unsigned max_outstanding)
{
	return RTE_ALIGN_CEIL(sizeof(struct bs_region), RTE_CACHE_LINE_SIZE * 2) + ring_size(max_outstanding) + (size_t)queues * RINGS * ring_size(depth);
}

int bs_region_init(struct bs_region *r, unsigned queues, unsigned depth, unsigned max_outstanding)
{
	uint64_t next = RTE_ALIGN_CEIL(sizeof(*r), RTE_CACHE_LINE_SIZE * 2);
	int rc = rte_ring_init(RTE_PTR_ADD(r, next), "freed", max_outstanding, RING_F_SC_DEQ | RING_F_EXACT_SZ);
	r->freed = next;
	next += ring_size(max_outstanding);
	for (unsigned q = 0; q < queues; q++)
		for (unsigned i = 0; i < RINGS && rc == 0; i++) {
			rc = rte_ring_init(RTE_PTR_ADD(r, next), "queue", depth, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
			r->ring[q][i] = next;
			next += ring_size(depth);
		}
	if (rc == 0)
		rc = rte_mempool_set_ops_byname(&r->proxy, proxy_ops.name, NULL);
	r->proxy.pool_data = RTE_PTR_ADD(r, r->freed);
	r->magic = MAGIC;
	r->size = next;
	r->queues = queues;
	r->pool_size = sizeof(struct rte_mempool);
	return rc;
}

/* Returns 1 if the pools of the server have the same layout and operations, as those of the same program have. */
int bs_region_compatible(const struct bs_region *r, size_t size)
{
	struct rte_mempool own = {0};
	return r->magic == MAGIC && r->size <= size && r->queues <= BS_MAX_QUEUES && r->pool_size == sizeof(own) &&
		rte_mempool_set_ops_byname(&own, proxy_ops.name, NULL) == 0 && own.ops_index == r->proxy.ops_index;
}

unsigned bs_region_queues(const struct bs_region *r) { return r->queues; }
struct rte_mempool *bs_region_proxy_pool(struct bs_region *r) { return &r->proxy; }
static struct rte_ring *ring(struct bs_region *r, uint64_t offset) { return RTE_PTR_ADD(r, offset); }

unsigned bs_server_room(struct bs_region *r, unsigned queue) { return rte_ring_free_count(ring(r, r->ring[queue][TO_CLIENT])); }
unsigned bs_client_room(struct bs_region *r, unsigned queue) { return rte_ring_free_count(ring(r, r->ring[queue][TO_SERVER])); }
unsigned bs_server_send(struct bs_region *r, unsigned queue, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(r, r->ring[queue][TO_CLIENT]), (void *const *)at, n, NULL);
}
unsigned bs_client_receive(struct bs_region *r, unsigned queue, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(r, r->ring[queue][TO_CLIENT]), (void **)at, n, NULL);
}
unsigned bs_client_send(struct bs_region *r, unsigned queue, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(r, r->ring[queue][TO_SERVER]), (void *const *)at, n, NULL);
}
unsigned bs_server_receive(struct bs_region *r, unsigned queue, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(r, r->ring[queue][TO_SERVER]), (void **)at, n, NULL);
}
unsigned bs_server_refill_count(struct bs_region *r, unsigned queue) { return rte_ring_count(ring(r, r->ring[queue][REFILL])); }
unsigned bs_server_refill(struct bs_region *r, unsigned queue, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(r, r->ring[queue][REFILL]), (void *const *)at, n, NULL);
}
struct rte_mbuf *bs_client_alloc(struct bs_region *r, unsigned queue)
{
	void *m = NULL;
	return rte_ring_sc_dequeue(ring(r, r->ring[queue][REFILL]), &m) == 0 ? m : NULL;
}
/* The client polls once more after it has said that it waits, so that packets sent before are seen. */
void bs_client_set_waiting(struct bs_region *r, unsigned queue, int waits) { __atomic_store_n(&r->waits[queue].flag, waits, __ATOMIC_SEQ_CST); }
int bs_server_has_to_wake(struct bs_region *r, unsigned queue)
{
	/* packets are visible before the flag is read */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&r->waits[queue].flag, __ATOMIC_RELAXED) != 0 && __atomic_exchange_n(&r->waits[queue].flag, 0, __ATOMIC_RELAXED) != 0;
}
int bs_server_has_freed(struct bs_region *r) { return !rte_ring_empty(ring(r, r->freed)); }
unsigned bs_server_take_freed(struct bs_region *r, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(r, r->freed), (void **)at, n, NULL);
}

struct reclaimed {
	const struct rte_mempool *proxy;
	unsigned n;
	/* returned in bulk, as each call may contend with other users of the pool */
	void *at[256];
};

static void reclaim(struct rte_mempool *mp, void *arg, void *obj, unsigned n)
{
	struct reclaimed *r = arg;
	struct rte_mbuf *m = obj;
	if (m->pool != r->proxy)
		return;
	m->pool = mp;
	m->next = NULL;
	m->nb_segs = 1;
	m->ol_flags = 0;
	rte_mbuf_refcnt_set(m, 1);
	r->at[r->n++] = m;
	if (r->n == RTE_DIM(r->at)) {
		rte_mempool_put_bulk(mp, r->at, r->n);
		r->n = 0;
	}
}

void bs_region_reclaim(struct bs_region *region, struct rte_mempool *pool)
{
	struct reclaimed r = {.proxy = &region->proxy};
	rte_mempool_obj_iter(pool, reclaim, &r);
	if (r.n != 0)
		rte_mempool_put_bulk(pool, r.at, r.n);
}

struct segments {
	struct bs_segment *at;
	unsigned room;
	int n;
};

static void add_segments(struct rte_mempool *mp, void *arg, struct rte_mempool_memhdr *chunk, unsigned n)
{
	struct segments *list = arg;
	const char *end = (const char *)chunk->addr + chunk->len;
	for (const char *at = chunk->addr; list->n >= 0 && at < end;) {
		const struct rte_memseg *s = rte_mem_virt2memseg(at, NULL);
		size_t offset = 0;
		int fd = s == NULL ? -1 : rte_memseg_get_fd((struct rte_memseg *)s);
		if (fd < 0 || rte_memseg_get_fd_offset((struct rte_memseg *)s, &offset) < 0) {
			list->n = -ENOTSUP;
			return;
		}
		struct bs_segment *last = list->n > 0 ? &list->at[list->n - 1] : NULL;
		char *from = s->addr;
		if (last != NULL && last->fd == fd && last->at <= from && from + s->len <= last->at + last->len) {
			/* chunks may share a page */
		} else if (last != NULL && last->fd == fd && last->at + last->len == from && last->offset + last->len == offset) {
			last->len += s->len;
		} else if ((unsigned)list->n < list->room) {
			list->at[list->n++] = (struct bs_segment){.at = from, .len = s->len, .offset = offset, .fd = fd};
		} else {
			list->n = -E2BIG;
			return;
		}
		at = from + s->len;
	}
}

int bs_pool_segments(struct rte_mempool *pool, struct bs_segment *at, unsigned room)
{
	struct segments list = {.at = at, .room = room};
	rte_mempool_mem_iter(pool, add_segments, &list);
	return list.n;
}
