/* Ports in memory. */
#include "forward.h"

uint16_t memory_receive(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	rte_memcpy(p, port->slots + (port->head & port->mask), BURST * sizeof(*p));
	port->head += BURST;
	return BURST;
}

uint16_t memory_transmit(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	struct rte_mbuf **to = port->slots + (port->tail & port->mask);
	if (likely(n == BURST))
		rte_memcpy(to, p, BURST * sizeof(*p));
	else
		rte_memcpy(to, p, n * sizeof(*p));
	port->tail += n;
	return n;
}

/* As memory_receive; writes the next destination of a list into each packet, with a new time to live and the checksum of both. */
uint16_t memory_receive_fresh(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	memory_receive(port, p, n);
	const struct fresh *f = (const struct fresh *)port->fresh + (port->at & port->fresh_mask);
	port->at += BURST;
	for (int i = 0; i < BURST; i++) {
		uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		memcpy(d, &port->frame_start, 8);
		memcpy(d + 22, &f[i].ttl_protocol_checksum, 4);
		memcpy(d + 30, &f[i].dst, 4);
	}
	return BURST;
}

/* As memory_receive_fresh, for IPv6 frames. */
uint16_t memory_receive_fresh6(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	memory_receive(port, p, n);
	const struct fresh6 *f = (const struct fresh6 *)port->fresh + (port->at & port->fresh_mask);
	port->at += BURST;
	for (int i = 0; i < BURST; i++) {
		uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		memcpy(d, &port->frame_start, 8);
		memcpy(d + 14, &port->ip_start, 8);
		memcpy(d + 38, f[i].dst, 16);
	}
	return BURST;
}

/* As memory_receive_fresh; writes the addresses and ports of the next connection into each packet. */
uint16_t memory_receive_fresh_flow(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	memory_receive(port, p, n);
	const struct fresh_flow *f = (const struct fresh_flow *)port->fresh + (port->at & port->fresh_mask);
	port->at += BURST;
	for (int i = 0; i < BURST; i++) {
		uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		memcpy(d, &port->frame_start, 8);
		memcpy(d + 22, f[i].bytes, 16);
	}
	return BURST;
}

/* As memory_receive_fresh_flow; removes prepended headers of a tunnel. */
uint16_t memory_receive_fresh_whole(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	memory_receive(port, p, n);
	const struct fresh_flow *f = (const struct fresh_flow *)port->fresh + (port->at & port->fresh_mask);
	port->at += BURST;
	for (int i = 0; i < BURST; i++) {
		p[i]->data_off = RTE_PKTMBUF_HEADROOM;
		p[i]->data_len = 60;
		p[i]->pkt_len = 60;
		uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		memcpy(d, &port->frame_start, 8);
		memcpy(d + 8, &port->ip_start, 8);
		memcpy(d + 22, f[i].bytes, 16);
	}
	return BURST;
}

/* As memory_receive_fresh; writes the next pair of MAC addresses into each packet. */
uint16_t memory_receive_fresh_macs(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	memory_receive(port, p, n);
	const struct fresh_macs *f = (const struct fresh_macs *)port->fresh + (port->at & port->fresh_mask);
	port->at += BURST;
	for (int i = 0; i < BURST; i++)
		memcpy(rte_pktmbuf_mtod(p[i], uint8_t *), f[i].bytes, 16);
	return BURST;
}

uint16_t (*volatile memory_rx_fresh_macs)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive_fresh_macs;
uint16_t (*volatile memory_rx_fresh_whole)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive_fresh_whole;
uint16_t (*volatile memory_rx_fresh_flow)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive_fresh_flow;
uint16_t (*volatile memory_rx_fresh6)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive_fresh6;
uint16_t (*volatile memory_rx_fresh)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive_fresh;
uint16_t (*volatile memory_rx_burst)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive;
uint16_t (*volatile memory_tx_burst)(struct port *, struct rte_mbuf **, uint16_t) = memory_transmit;
