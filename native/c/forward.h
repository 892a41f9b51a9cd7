/* Forwarding loop of a network function: receives, processes, sends and counts bursts. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <immintrin.h>
#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#define BURST 64
/* Prefetch distance in packets. */
#define AHEAD 8

/* Allocates zeroed memory for a table, in huge pages if available; bytes is a multiple of their size. */
static inline void *table_new(size_t bytes)
{
	void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (table == MAP_FAILED) {
		table = aligned_alloc(2 << 20, bytes);
		madvise(table, bytes, MADV_HUGEPAGE);
	}
	memset(table, 0, bytes);
	return table;
}

/* Frees memory of table_new. */
static inline void table_free(void *table, size_t bytes)
{
	madvise(table, bytes, MADV_DONTNEED);
	munmap(table, bytes);
}

/* Counters of an lcore. */
struct counts {
	uint64_t received, sent, tx_full;
	uint64_t dropped[4];
};

/* Bytes 22 to 25 and 30 to 33 of an IPv4 frame. */
struct fresh {
	uint32_t ttl_protocol_checksum, dst;
};

/* Bytes 38 to 53 of an IPv6 frame. */
struct fresh6 {
	uint8_t dst[16];
};

/* Bytes 22 to 37 of an IPv4 frame: time to live, protocol, checksum, addresses, ports. */
struct fresh_flow {
	uint8_t bytes[16];
};

/* Bytes 0 to 15 of a frame: both MAC addresses, and what follows. */
struct fresh_macs {
	uint8_t bytes[16];
};

/* Port: an ethdev queue, or a ring in memory whose sent packets are received again (its number of slots is a power of two; C and
 * Rust use the same array). Its burst functions are called through pointers, like those of an ethdev. */
struct port {
	uint16_t ethdev;
	struct rte_mbuf **slots; /* NULL: an ethdev */
	uint32_t mask, head, tail;
	const void *fresh; /* array of struct fresh, fresh6, fresh_flow or fresh_macs; NULL: packets are received unchanged */
	uint32_t fresh_mask, at;
	uint64_t frame_start; /* with fresh: the first eight bytes of every frame */
	uint64_t ip_start; /* with fresh6: the first eight bytes of every IPv6 header; with FRESH_WHOLE: the next eight of every frame */
};

/* Kind of a port. All but the first two write fresh fields into received packets; FRESH_WHOLE also removes prepended headers. */
enum { ETHDEV, MEMORY, FRESH, FRESH6, FRESH_FLOW, FRESH_WHOLE, FRESH_MACS };

uint16_t memory_receive(struct port *port, struct rte_mbuf **p, uint16_t n);
uint16_t memory_transmit(struct port *port, struct rte_mbuf **p, uint16_t n);
extern uint16_t (*volatile memory_rx_fresh)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh6)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_flow)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_whole)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_macs)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_burst)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_tx_burst)(struct port *, struct rte_mbuf **, uint16_t);

/* Processes n packets; moves those to send to the front of the array, in order, and returns their number. */
typedef uint16_t (*nf_fn)(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state);

static __rte_always_inline uint16_t receive(struct port *port, struct rte_mbuf **p, int kind)
{
	if (kind == FRESH)
		return memory_rx_fresh(port, p, BURST);
	if (kind == FRESH6)
		return memory_rx_fresh6(port, p, BURST);
	if (kind == FRESH_FLOW)
		return memory_rx_fresh_flow(port, p, BURST);
	if (kind == FRESH_WHOLE)
		return memory_rx_fresh_whole(port, p, BURST);
	if (kind == FRESH_MACS)
		return memory_rx_fresh_macs(port, p, BURST);
	return kind == MEMORY ? memory_rx_burst(port, p, BURST) : rte_eth_rx_burst(port->ethdev, 0, p, BURST);
}

static __rte_always_inline uint16_t transmit(struct port *port, struct rte_mbuf **p, uint16_t n, int kind)
{
	return kind != ETHDEV ? memory_tx_burst(port, p, n) : rte_eth_tx_burst(port->ethdev, 0, p, n);
}

/* Forwards bursts alternately from a to b and from b to a. */
static __rte_always_inline void forward(struct port *a, struct port *b, uint32_t bursts, struct counts *c, nf_fn nf, void *state, int kind)
{
	struct rte_mbuf *p[BURST] __rte_cache_aligned;
	for (uint32_t k = 0; k < bursts; k++) {
		struct port *rx = k & 1 ? b : a, *tx = k & 1 ? a : b;
		uint16_t n = receive(rx, p, kind);
		if (unlikely(n == 0))
			continue;
		c->received += n;
		n = nf(p, n, c, state);
		uint16_t sent = transmit(tx, p, n, kind);
		c->sent += sent;
		if (unlikely(sent < n)) {
			c->tx_full += n - sent;
			rte_pktmbuf_free_bulk(p + sent, n - sent);
		}
	}
}

/* Defines a network function as three loops, one for each kind of port. */
#define NETWORK_FUNCTION(name, nf) NETWORK_FUNCTION_ON(name, nf, FRESH)
#define NETWORK_FUNCTION_ON(name, nf, of_fresh)                                                                      \
	void native_##name(struct port *a, struct port *b, uint32_t bursts, struct counts *c, void *state)           \
	{                                                                                                            \
		if (a->fresh != NULL)                                                                                \
			forward(a, b, bursts, c, nf, state, of_fresh);                                               \
		else if (a->slots != NULL)                                                                           \
			forward(a, b, bursts, c, nf, state, MEMORY);                                                 \
		else                                                                                                 \
			forward(a, b, bursts, c, nf, state, ETHDEV);                                                 \
	}

/* Prefetches the mbuf and first bytes of a packet, assuming the standard headroom so as not to wait for the mbuf. */
static __rte_always_inline void prefetch(struct rte_mbuf **p, uint16_t i, uint16_t n)
{
	if (i + AHEAD < n) {
		rte_prefetch0(p[i + AHEAD]);
		rte_prefetch0((char *)p[i + AHEAD] + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM);
	}
}

/* As prefetch, for the first packets of a burst. */
static __rte_always_inline void prefetch_first(struct rte_mbuf **p, uint16_t n)
{
	for (uint16_t i = 0; i < AHEAD && i < n; i++) {
		rte_prefetch0(p[i]);
		rte_prefetch0((char *)p[i] + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM);
	}
}

/* Removes the packets of a mask from the burst and frees them in bulk. */
static __rte_noinline uint16_t free_dropped(struct rte_mbuf **p, uint16_t n, uint64_t drops)
{
	struct rte_mbuf *out[BURST];
	uint16_t sent = 0, freed = 0;
	for (uint16_t i = 0; i < n; i++)
		if (drops & 1ull << i)
			out[freed++] = p[i];
		else
			p[sent++] = p[i];
	rte_pktmbuf_free_bulk(out, freed);
	return sent;
}
