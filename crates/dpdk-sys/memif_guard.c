/* Guards for the queues of memif ports. When its peer disconnects, the driver unmaps the peer's memory in DPDK's interrupt
 * thread, while workers may be reading it. A guard marks the queue as busy during a burst; the interrupt thread waits until
 * no queue is busy. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rte_interrupts.h>
#include "shim.h"

typedef uint16_t (*burst)(void *queue, struct rte_mbuf **at, uint16_t n);

/* A queue whose bursts are guarded; `seq` is odd during a burst. */
struct guard {
	_Alignas(128) _Atomic unsigned seq;
	burst inner;
	void *queue;
	uint32_t max_len;
};

/* The guards of a port. `queues` replaces the queue pointers in DPDK's table of burst functions: receive, then transmit. */
struct port_guards {
	struct port_guards *next;
	uint16_t port;
	unsigned n;
	void **queues;
	struct guard *all;
};

static struct port_guards *ports;
static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;

static inline uint16_t guarded_burst(struct guard *g, struct rte_mbuf **at, uint16_t n)
{
	unsigned seq = atomic_load_explicit(&g->seq, memory_order_relaxed) + 1;
	/* sequentially consistent: either this burst sees the port closed, or the interrupt thread sees the odd number */
	atomic_exchange(&g->seq, seq);
	n = g->inner(g->queue, at, n);
	atomic_store_explicit(&g->seq, seq + 1, memory_order_release);
	return n;
}

static uint16_t guarded_rx(void *guard, struct rte_mbuf **at, uint16_t n) { return guarded_burst(guard, at, n); }

static uint16_t guarded_tx(void *guard, struct rte_mbuf **at, uint16_t n)
{
	struct guard *g = guard;
	for (uint16_t i = 0; i < n; i++)
		if (at[i]->pkt_len > g->max_len) {
			n = i;
			break;
		}
	return guarded_burst(g, at, n);
}

int bs_memif_guard(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t max_len)
{
	struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[port];
	struct port_guards *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->port = port;
	p->n = rx_queues + tx_queues;
	p->queues = calloc(p->n, sizeof(*p->queues));
	if (p->queues == NULL || posix_memalign((void **)&p->all, 128, p->n * sizeof(*p->all)) != 0) {
		free(p->queues);
		free(p);
		return -ENOMEM;
	}
	for (unsigned q = 0; q < p->n; q++) {
		int rx = q < rx_queues;
		p->all[q] = (struct guard){
			.inner = rx ? ops->rx_pkt_burst : ops->tx_pkt_burst,
			.queue = rx ? ops->rxq.data[q] : ops->txq.data[q - rx_queues],
			.max_len = max_len,
		};
		p->queues[q] = &p->all[q];
	}
	pthread_mutex_lock(&ports_lock);
	p->next = ports;
	ports = p;
	pthread_mutex_unlock(&ports_lock);
	ops->rxq.data = p->queues;
	ops->txq.data = p->queues + rx_queues;
	ops->rx_pkt_burst = guarded_rx;
	ops->tx_pkt_burst = guarded_tx;
	return 0;
}

void bs_memif_unguard(uint16_t port)
{
	pthread_mutex_lock(&ports_lock);
	for (struct port_guards **at = &ports; *at != NULL; at = &(*at)->next)
		if ((*at)->port == port) {
			struct port_guards *p = *at;
			*at = p->next;
			free(p->all);
			free(p->queues);
			free(p);
			break;
		}
	pthread_mutex_unlock(&ports_lock);
}

static void wait_for_bursts(void)
{
	pthread_mutex_lock(&ports_lock);
	atomic_thread_fence(memory_order_seq_cst);
	for (struct port_guards *p = ports; p != NULL; p = p->next)
		for (unsigned q = 0; q < p->n; q++) {
			unsigned seq = atomic_load(&p->all[q].seq);
			while ((seq & 1) != 0 && atomic_load(&p->all[q].seq) == seq)
				usleep(20);
		}
	pthread_mutex_unlock(&ports_lock);
}

/* Replaces the C library's munmap, the only call of the driver at which it can be made to wait. By then the driver has closed
 * the port to workers. */
int munmap(void *at, size_t length)
{
	if (rte_thread_is_intr())
		wait_for_bursts();
	return syscall(SYS_munmap, at, length);
}
