/* rte_ring between two cores, one producer and one consumer. */
#include <rte_ring.h>
#include "forward.h"

struct rte_ring *native_ring_new(const char *name, uint32_t room)
{
	return rte_ring_create(name, room, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

void native_ring_free(struct rte_ring *r) { rte_ring_free(r); }

uint32_t native_ring_put(struct rte_ring *r, void *const *p, uint32_t n) { return rte_ring_sp_enqueue_burst(r, p, n, NULL); }

/* Moves a burst to the other ring, which has room for all packets; returns their number and adds their bytes to *bytes. */
uint32_t native_ring_pass(struct rte_ring *from, struct rte_ring *to, uint64_t *bytes)
{
	struct rte_mbuf *p[BURST];
	uint32_t n = rte_ring_sc_dequeue_burst(from, (void **)p, BURST, NULL);
	if (n == 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		*bytes += p[i]->data_len;
	rte_ring_sp_enqueue_burst(to, (void **)p, n, NULL);
	return n;
}

uint32_t native_ring_take(struct rte_ring *from, void **p, uint32_t n) { return rte_ring_sc_dequeue_burst(from, p, n, NULL); }
