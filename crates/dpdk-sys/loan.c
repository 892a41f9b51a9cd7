/* Packet buffers lent to another process, which has their memory at the same addresses. */
#define _GNU_SOURCE
#include <string.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_ring.h>
#include "shim.h"

#define MAGIC 0x626f6e6473746f6eULL
enum { THERE, BACK, SPARE, WAYS };

/* What both sides see besides the packets. Rings are as far from its beginning as is said. */
struct bs_loan {
	uint64_t magic, size;
	uint32_t lanes, pool_size;
	uint64_t home, lane[BS_LOAN_LANES][WAYS];
	/* whoever frees a buffer that is lent gives it to this pool, whose ring leads home */
	struct rte_mempool stand;
};

static int go_home(struct rte_mempool *mp, void *const *at, unsigned n)
{
	/* there is room for all that is ever lent */
	return rte_ring_mp_enqueue_bulk(mp->pool_data, at, n, NULL) == n ? 0 : -ENOBUFS;
}
static int no_pool(struct rte_mempool *mp) { return -ENOTSUP; }
static int has_none(struct rte_mempool *mp, void **at, unsigned n) { return -ENOBUFS; }
static unsigned count_none(const struct rte_mempool *mp) { return 0; }

static const struct rte_mempool_ops loan_ops = {
	.name = "bondstone_loan",
	.alloc = no_pool,
	.enqueue = go_home,
	.dequeue = has_none,
	.get_count = count_none,
};
RTE_MEMPOOL_REGISTER_OPS(loan_ops);

static size_t ring_size(unsigned n) { return RTE_ALIGN_CEIL(rte_ring_get_memsize(rte_align32pow2(n + 1)), RTE_CACHE_LINE_SIZE * 2); }

size_t bs_loan_size(unsigned lanes, unsigned queue, unsigned most)
{
	return RTE_ALIGN_CEIL(sizeof(struct bs_loan), RTE_CACHE_LINE_SIZE * 2) + ring_size(most) + (size_t)lanes * WAYS * ring_size(queue);
}

int bs_loan_make(struct bs_loan *l, unsigned lanes, unsigned queue, unsigned most)
{
	uint64_t next = RTE_ALIGN_CEIL(sizeof(*l), RTE_CACHE_LINE_SIZE * 2);
	int rc = rte_ring_init(RTE_PTR_ADD(l, next), "home", most, RING_F_SC_DEQ | RING_F_EXACT_SZ);
	l->home = next;
	next += ring_size(most);
	for (unsigned n = 0; n < lanes; n++)
		for (unsigned way = 0; way < WAYS && rc == 0; way++) {
			rc = rte_ring_init(RTE_PTR_ADD(l, next), "lane", queue, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
			l->lane[n][way] = next;
			next += ring_size(queue);
		}
	if (rc == 0)
		rc = rte_mempool_set_ops_byname(&l->stand, loan_ops.name, NULL);
	l->stand.pool_data = RTE_PTR_ADD(l, l->home);
	l->magic = MAGIC;
	l->size = next;
	l->lanes = lanes;
	l->pool_size = sizeof(struct rte_mempool);
	return rc;
}

/* Whether the other side's pools look the same and call the same functions, as those of the same program do. */
int bs_loan_fits(const struct bs_loan *l, size_t size)
{
	struct rte_mempool own = {0};
	return l->magic == MAGIC && l->size <= size && l->lanes <= BS_LOAN_LANES && l->pool_size == sizeof(own) &&
		rte_mempool_set_ops_byname(&own, loan_ops.name, NULL) == 0 && own.ops_index == l->stand.ops_index;
}

unsigned bs_loan_lanes(const struct bs_loan *l) { return l->lanes; }
struct rte_mempool *bs_loan_stand(struct bs_loan *l) { return &l->stand; }
static struct rte_ring *ring(struct bs_loan *l, uint64_t at) { return RTE_PTR_ADD(l, at); }

unsigned bs_loan_room(struct bs_loan *l, unsigned lane) { return rte_ring_free_count(ring(l, l->lane[lane][THERE])); }
unsigned bs_loan_room_back(struct bs_loan *l, unsigned lane) { return rte_ring_free_count(ring(l, l->lane[lane][BACK])); }
unsigned bs_loan_lend(struct bs_loan *l, unsigned lane, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(l, l->lane[lane][THERE]), (void *const *)at, n, NULL);
}
unsigned bs_loan_borrow(struct bs_loan *l, unsigned lane, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(l, l->lane[lane][THERE]), (void **)at, n, NULL);
}
unsigned bs_loan_give_back(struct bs_loan *l, unsigned lane, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(l, l->lane[lane][BACK]), (void *const *)at, n, NULL);
}
unsigned bs_loan_take_back(struct bs_loan *l, unsigned lane, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(l, l->lane[lane][BACK]), (void **)at, n, NULL);
}
unsigned bs_loan_spares(struct bs_loan *l, unsigned lane) { return rte_ring_count(ring(l, l->lane[lane][SPARE])); }
unsigned bs_loan_lend_spare(struct bs_loan *l, unsigned lane, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sp_enqueue_burst(ring(l, l->lane[lane][SPARE]), (void *const *)at, n, NULL);
}
struct rte_mbuf *bs_loan_spare(struct bs_loan *l, unsigned lane)
{
	void *m = NULL;
	return rte_ring_sc_dequeue(ring(l, l->lane[lane][SPARE]), &m) == 0 ? m : NULL;
}
int bs_loan_freed(struct bs_loan *l) { return !rte_ring_empty(ring(l, l->home)); }
unsigned bs_loan_take_freed(struct bs_loan *l, struct rte_mbuf **at, unsigned n)
{
	return rte_ring_sc_dequeue_burst(ring(l, l->home), (void **)at, n, NULL);
}

struct reclaimed {
	const struct rte_mempool *stand;
	unsigned n;
	/* together, as each call may wait for who is at the pool as well */
	void *at[256];
};

static void reclaim(struct rte_mempool *mp, void *arg, void *obj, unsigned n)
{
	struct reclaimed *r = arg;
	struct rte_mbuf *m = obj;
	if (m->pool != r->stand)
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

void bs_loan_reclaim(struct bs_loan *l, struct rte_mempool *pool)
{
	struct reclaimed r = {.stand = &l->stand};
	rte_mempool_obj_iter(pool, reclaim, &r);
	if (r.n != 0)
		rte_mempool_put_bulk(pool, r.at, r.n);
}

struct pieces {
	struct bs_piece *at;
	unsigned room;
	int n;
};

static void look(struct rte_mempool *mp, void *arg, struct rte_mempool_memhdr *chunk, unsigned n)
{
	struct pieces *p = arg;
	const char *end = (const char *)chunk->addr + chunk->len;
	for (const char *at = chunk->addr; p->n >= 0 && at < end;) {
		const struct rte_memseg *s = rte_mem_virt2memseg(at, NULL);
		size_t offset = 0;
		int fd = s == NULL ? -1 : rte_memseg_get_fd((struct rte_memseg *)s);
		if (fd < 0 || rte_memseg_get_fd_offset((struct rte_memseg *)s, &offset) < 0) {
			p->n = -ENOTSUP;
			return;
		}
		struct bs_piece *last = p->n > 0 ? &p->at[p->n - 1] : NULL;
		char *from = s->addr;
		if (last != NULL && last->fd == fd && last->at <= from && from + s->len <= last->at + last->len) {
			/* chunks may share a page */
		} else if (last != NULL && last->fd == fd && last->at + last->len == from && last->offset + last->len == offset) {
			last->len += s->len;
		} else if ((unsigned)p->n < p->room) {
			p->at[p->n++] = (struct bs_piece){.at = from, .len = s->len, .offset = offset, .fd = fd};
		} else {
			p->n = -E2BIG;
			return;
		}
		at = from + s->len;
	}
}

int bs_pool_pieces(struct rte_mempool *pool, struct bs_piece *at, unsigned room)
{
	struct pieces p = {.at = at, .room = room};
	rte_mempool_mem_iter(pool, look, &p);
	return p.n;
}
