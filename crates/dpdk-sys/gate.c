/* Gates in front of memif's queues. That driver takes a peer's memory out of this process when the peer is gone, in DPDK's
 * thread for interrupts, while workers may be at it. A gate says whether somebody is within; that thread waits for him. */
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

/* `turn` is odd while somebody is within. */
struct gate {
	_Alignas(128) _Atomic unsigned turn;
	burst through;
	void *queue;
	uint32_t longest;
};

/* Those of a port. `queues` is what DPDK's table of functions names: receive queues, then transmit queues. */
struct gates {
	struct gates *next;
	uint16_t port;
	unsigned n;
	void **queues;
	struct gate *all;
};

static struct gates *gates;
static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;

static inline uint16_t pass(struct gate *g, struct rte_mbuf **at, uint16_t n)
{
	unsigned turn = atomic_load_explicit(&g->turn, memory_order_relaxed) + 1;
	/* whoever takes memory away has said so before he looks here: one of the two sees the other */
	atomic_exchange(&g->turn, turn);
	n = g->through(g->queue, at, n);
	atomic_store_explicit(&g->turn, turn + 1, memory_order_release);
	return n;
}

static uint16_t gate_receive(void *gate, struct rte_mbuf **at, uint16_t n) { return pass(gate, at, n); }

static uint16_t gate_send(void *gate, struct rte_mbuf **at, uint16_t n)
{
	struct gate *g = gate;
	for (uint16_t i = 0; i < n; i++)
		if (at[i]->pkt_len > g->longest) {
			n = i;
			break;
		}
	return pass(g, at, n);
}

int bs_gate(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t longest)
{
	struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[port];
	struct gates *g = calloc(1, sizeof(*g));
	if (g == NULL)
		return -ENOMEM;
	g->port = port;
	g->n = rx_queues + tx_queues;
	g->queues = calloc(g->n, sizeof(*g->queues));
	if (g->queues == NULL || posix_memalign((void **)&g->all, 128, g->n * sizeof(*g->all)) != 0) {
		free(g->queues);
		free(g);
		return -ENOMEM;
	}
	for (unsigned q = 0; q < g->n; q++) {
		int rx = q < rx_queues;
		g->all[q] = (struct gate){
			.through = rx ? ops->rx_pkt_burst : ops->tx_pkt_burst,
			.queue = rx ? ops->rxq.data[q] : ops->txq.data[q - rx_queues],
			.longest = longest,
		};
		g->queues[q] = &g->all[q];
	}
	pthread_mutex_lock(&gates_lock);
	g->next = gates;
	gates = g;
	pthread_mutex_unlock(&gates_lock);
	ops->rxq.data = g->queues;
	ops->txq.data = g->queues + rx_queues;
	ops->rx_pkt_burst = gate_receive;
	ops->tx_pkt_burst = gate_send;
	return 0;
}

void bs_ungate(uint16_t port)
{
	pthread_mutex_lock(&gates_lock);
	for (struct gates **at = &gates; *at != NULL; at = &(*at)->next)
		if ((*at)->port == port) {
			struct gates *g = *at;
			*at = g->next;
			free(g->all);
			free(g->queues);
			free(g);
			break;
		}
	pthread_mutex_unlock(&gates_lock);
}

static void wait_for_gates(void)
{
	pthread_mutex_lock(&gates_lock);
	atomic_thread_fence(memory_order_seq_cst);
	for (struct gates *g = gates; g != NULL; g = g->next)
		for (unsigned q = 0; q < g->n; q++) {
			unsigned turn = atomic_load(&g->all[q].turn);
			while ((turn & 1) != 0 && atomic_load(&g->all[q].turn) == turn)
				usleep(20);
		}
	pthread_mutex_unlock(&gates_lock);
}

/* In the place of the C library's, for the driver has no other place to wait at: by now it has closed the port to workers. */
int munmap(void *at, size_t length)
{
	if (rte_thread_is_intr())
		wait_for_gates();
	return syscall(SYS_munmap, at, length);
}
