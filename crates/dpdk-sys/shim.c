#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <pthread.h>
#include <rte_dev.h>
#include <rte_eth_ring.h>
#include <rte_log.h>
#include <rte_mbuf_dyn.h>
#include <rte_mbuf_pool_ops.h>
#include "shim.h"

_Static_assert(RTE_MBUF_F_RX_RSS_HASH == 1ULL << BS_RSS_HASH_BIT, "rss hash flag");

int bs_errno(void) { return rte_errno; }
unsigned bs_lcore_id(void) { return rte_lcore_id(); }

int bs_eal_init(int argc, char **argv)
{
	rte_errno = 0;
	return rte_eal_init(argc, argv) < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

/* DPDK's log: the newest bytes in a buffer of fixed size. */
static char log_text[16384];
static size_t log_len;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t log_write(void *cookie, const char *buf, size_t n)
{
	(void)cookie;
	size_t all = n;
	pthread_mutex_lock(&log_lock);
	if (n > sizeof(log_text)) {
		buf += n - sizeof(log_text);
		n = sizeof(log_text);
	}
	if (log_len + n > sizeof(log_text)) {
		size_t drop = log_len + n - sizeof(log_text);
		memmove(log_text, log_text + drop, log_len - drop);
		log_len -= drop;
	}
	memcpy(log_text + log_len, buf, n);
	log_len += n;
	pthread_mutex_unlock(&log_lock);
	return all;
}

/* the AF_XDP libraries, if linked, print to standard error by default */
typedef int (*xdp_print)(int level, const char *format, va_list args);
extern xdp_print libbpf_set_print(xdp_print f) __attribute__((weak));
extern xdp_print libxdp_set_print(xdp_print f) __attribute__((weak));

static int log_xdp(int level, const char *format, va_list args)
{
	/* 0 is a warning, higher levels are informational */
	return level > 0 ? 0 : vfprintf(rte_log_get_stream(), format, args);
}

int bs_log_capture(void)
{
	cookie_io_functions_t io = {.write = log_write};
	FILE *f = fopencookie(NULL, "w", io);
	if (f == NULL)
		return -ENOMEM;
	setvbuf(f, NULL, _IOLBF, 0);
	if (libbpf_set_print != NULL)
		libbpf_set_print(log_xdp);
	if (libxdp_set_print != NULL)
		libxdp_set_print(log_xdp);
	return rte_openlog_stream(f);
}

size_t bs_log_take(char *buf, size_t room)
{
	pthread_mutex_lock(&log_lock);
	size_t n = log_len < room - 1 ? log_len : room - 1;
	memcpy(buf, log_text + log_len - n, n);
	buf[n] = 0;
	log_len = 0;
	pthread_mutex_unlock(&log_lock);
	return n;
}

int bs_reserve_dynamic(size_t offset, size_t size, unsigned timestamp_bit, unsigned metadata_bit)
{
	/* the size of a dynamic field must be a multiple of its alignment */
	struct rte_mbuf_dynfield field = {.name = "bondstone_capture", .size = size, .align = 8};
	struct rte_mbuf_dynflag timestamp = {.name = "bondstone_timestamp"}, metadata = {.name = "bondstone_metadata"};
	if (rte_mbuf_dynfield_register_offset(&field, offset) < 0)
		return -rte_errno;
	if (rte_mbuf_dynflag_register_bitnum(&timestamp, timestamp_bit) < 0 ||
	    rte_mbuf_dynflag_register_bitnum(&metadata, metadata_bit) < 0)
		return -rte_errno;
	return 0;
}

struct rte_mempool *bs_pool_create(const char *name, unsigned n, unsigned cache, uint16_t room, int spread)
{
	struct rte_pktmbuf_pool_private priv = {.mbuf_data_room_size = room};
	unsigned flags = spread ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
	struct rte_mempool *mp = rte_mempool_create_empty(name, n, sizeof(struct rte_mbuf) + room, cache, sizeof(priv), rte_socket_id(), flags);
	if (mp == NULL)
		return NULL;
	int rc = rte_mempool_set_ops_byname(mp, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(mp, &priv);
		rc = rte_mempool_populate_default(mp);
	}
	if (rc < 0) {
		rte_mempool_free(mp);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
	return mp;
}

struct rte_mbuf *bs_alloc(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

int bs_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **at, unsigned n)
{
	int rc = rte_mempool_get_bulk(pool, (void **)at, n);
	if (rc != 0)
		return rc;
	/* another core may have freed them: fetch both lines of the header and the first one of the data at once */
	for (unsigned i = 0; i < n; i++) {
		__builtin_prefetch(at[i], 1);
		__builtin_prefetch((char *)at[i] + RTE_CACHE_LINE_SIZE, 1);
		__builtin_prefetch((char *)at[i] + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM, 1);
	}
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_reset(at[i]);
	return 0;
}

void bs_free(struct rte_mbuf **at, unsigned n)
{
	unsigned from = 0;
	for (unsigned i = 1; i <= n; i++)
		if (i == n || at[i]->pool != at[from]->pool) {
			rte_mempool_put_bulk(at[from]->pool, (void **)(at + from), i - from);
			from = i;
		}
}

static int is_simple(const struct rte_mbuf *m)
{
	return m->nb_segs == 1 && rte_mbuf_refcnt_read(m) == 1 && RTE_MBUF_DIRECT(m) && m->pool != NULL;
}

/* Returns 1 if every segment lies within its buffer and the lengths add up; a driver may take lengths from its peer. */
static int lengths_consistent(const struct rte_mbuf *m)
{
	uint32_t all = 0;
	uint16_t segments = 0;
	for (const struct rte_mbuf *s = m; s != NULL; s = s->next, segments++) {
		if ((uint32_t)s->data_off + s->data_len > s->buf_len)
			return 0;
		all += s->data_len;
	}
	return segments == m->nb_segs && all == m->pkt_len;
}

struct bs_linearized bs_linearize(struct rte_mbuf **at, unsigned n, struct rte_mempool *pool)
{
	const uint32_t room = (uint32_t)rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
	struct bs_linearized t = {0};
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = at[i];
		int consistent = lengths_consistent(m);
		if (!is_simple(m) || !consistent) {
			struct rte_mbuf *c = NULL;
			if (consistent && m->pkt_len > room)
				t.too_long++;
			else if (consistent)
				c = rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
			rte_pktmbuf_free(m);
			if (c == NULL)
				continue;
			t.copied++;
			m = c;
		}
		at[t.kept++] = m;
	}
	return t;
}

int bs_port_probe(const char *device, const char *name)
{
	uint16_t port;
	int rc = rte_dev_probe(device);
	if (rc < 0)
		return rc;
	rc = rte_eth_dev_get_port_by_name(name, &port);
	return rc < 0 ? rc : port;
}

int bs_wire(const char *a, const char *b, unsigned depth, uint16_t ports[2], struct rte_ring *rings[2])
{
	const unsigned flags = RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ;
	struct rte_ring *to = rte_ring_create(a, depth, SOCKET_ID_ANY, flags);
	struct rte_ring *back = rte_ring_create(b, depth, SOCKET_ID_ANY, flags);
	int first = -1, second = -1;
	if (to != NULL && back != NULL) {
		first = rte_eth_from_rings(a, &back, 1, &to, 1, rte_socket_id());
		second = first < 0 ? -1 : rte_eth_from_rings(b, &to, 1, &back, 1, rte_socket_id());
	}
	if (second < 0) {
		int rc = rte_errno != 0 ? -rte_errno : -ENOMEM;
		if (first >= 0)
			bs_port_stop(first);
		rte_ring_free(to);
		rte_ring_free(back);
		return rc;
	}
	ports[0] = first;
	ports[1] = second;
	rings[0] = to;
	rings[1] = back;
	return 0;
}

void bs_wire_free(struct rte_ring *rings[2])
{
	for (int i = 0; i < 2; i++) {
		void *left;
		while (rte_ring_sc_dequeue(rings[i], &left) == 0)
			rte_pktmbuf_free(left);
		rte_ring_free(rings[i]);
	}
}

int bs_port_info(uint16_t port, struct bs_port_info *info)
{
	struct rte_eth_dev_info d;
	int rc = rte_eth_dev_info_get(port, &d);
	if (rc < 0)
		return rc;
	memset(info, 0, sizeof(*info));
	if (d.driver_name != NULL)
		snprintf(info->driver, sizeof(info->driver), "%s", d.driver_name);
	if (rte_eth_dev_fw_version_get(port, info->firmware, sizeof(info->firmware)) != 0)
		info->firmware[0] = '\0';
	info->max_rx_queues = d.max_rx_queues;
	info->max_tx_queues = d.max_tx_queues;
	info->rss = (d.flow_type_rss_offloads & RTE_ETH_RSS_IP) != 0;
	info->socket = rte_eth_dev_socket_id(port);
	info->max_frame = RTE_MIN((uint32_t)d.max_mtu + RTE_ETHER_HDR_LEN, d.max_rx_pktlen - RTE_ETHER_CRC_LEN);
	return 0;
}

int bs_port_start(uint16_t port, uint16_t rxq, uint16_t txq, uint16_t rx_desc, uint16_t tx_desc, int rss, int rx_interrupts, uint16_t mtu, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info d;
	unsigned socket = rte_eth_dev_socket_id(port);
	int rc = rte_eth_dev_info_get(port, &d);
	if (rc < 0)
		return rc;
	if (rss) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = d.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	}
	conf.intr_conf.rxq = rx_interrupts != 0;
	conf.rxmode.mtu = mtu;
	rc = rte_eth_dev_configure(port, rxq, txq, &conf);
	if (rc < 0)
		return rc;
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_desc, &tx_desc);
	if (rc < 0)
		return rc;
	for (uint16_t q = 0; q < rxq && rc >= 0; q++)
		rc = rte_eth_rx_queue_setup(port, q, rx_desc, socket, NULL, pool);
	for (uint16_t q = 0; q < txq && rc >= 0; q++)
		rc = rte_eth_tx_queue_setup(port, q, tx_desc, socket, NULL);
	if (rc >= 0)
		rc = rte_eth_dev_start(port);
	if (rc >= 0)
		rte_eth_promiscuous_enable(port); /* best effort: many software ports have no filter */
	return rc;
}

int bs_rx_interrupt_fd(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

int bs_rx_interrupt_enable(uint16_t port, uint16_t queue, int on)
{
	return on ? rte_eth_dev_rx_intr_enable(port, queue) : rte_eth_dev_rx_intr_disable(port, queue);
}

int bs_rx_queue_count(uint16_t port, uint16_t queue)
{
	return rte_eth_rx_queue_count(port, queue);
}

int bs_rx_queue_size(uint16_t port, uint16_t queue)
{
	struct rte_eth_rxq_info info;
	int rc = rte_eth_rx_queue_info_get(port, queue, &info);
	return rc < 0 ? rc : info.nb_desc;
}

int bs_port_stop(uint16_t port)
{
	struct rte_eth_dev_info d;
	int rc = rte_eth_dev_info_get(port, &d);
	if (rc < 0)
		return rc;
	rte_eth_dev_stop(port);
	bs_memif_unguard(port);
	rte_eth_dev_close(port);
	return rte_dev_remove(d.device);
}

int bs_port_stats(uint16_t port, struct bs_port_stats *s)
{
	struct rte_eth_stats e = {0};
	int rc = rte_eth_stats_get(port, &e);
	*s = (struct bs_port_stats){e.ipackets, e.opackets, e.ibytes, e.obytes, e.imissed, e.ierrors, e.oerrors, e.rx_nombuf};
	return rc;
}

int bs_port_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr a;
	int rc = rte_eth_macaddr_get(port, &a);
	if (rc == 0)
		memcpy(mac, a.addr_bytes, 6);
	return rc;
}

int bs_port_link(uint16_t port)
{
	struct rte_eth_link l;
	int rc = rte_eth_link_get_nowait(port, &l);
	return rc < 0 ? rc : l.link_status == RTE_ETH_LINK_UP;
}
