#include "races.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace plugin::simt {
namespace {

bool writes(simt_access how) {
  return how == kSimtWrite || how == kSimtAtomicWrite;
}
bool is_atomic(simt_access how) {
  return how == kSimtAtomicRead || how == kSimtAtomicWrite;
}

} // namespace

races::page& races::page_of(uintptr_t number) {
  auto& [last, found] = recent_[number % recent_.size()];
  if (!found || last != number) {
    auto& owned = pages_[number];
    if (!owned) owned = std::make_unique<page>();
    last = number;
    found = owned.get();
  }
  return *found;
}

void races::split(page* p) {
  std::vector<cell> bytes(kPageBytes);
  for (uint32_t i = 0; i < kPageBytes; ++i) bytes[i] = p->cells[i / p->unit];
  p->cells = std::move(bytes);
  p->unit = 1;
}

void races::add(record* to, const actor& who) {
  if (to->block != who.block) {
    if (to->block != kNone) to->earlier_block = to->block, to->earlier_item = to->item;
  } else if (to->barriers == who.barriers) {
    if (to->item != who.item) to->other = to->item;
    to->item = who.item;
    return;
  }
  to->block = who.block;
  to->barriers = who.barriers;
  to->item = who.item;
  to->other = kNone;
}

bool races::conflicts(const record& with, const actor& who, uint32_t since, actor* out_other) {
  if (with.block == kNone) return false;
  const bool is_own = with.block == who.block;
  *out_other = {with.block, with.barriers, with.item};
  if (!is_own || (with.barriers >= since && with.item != who.item)) return true;
  out_other->item = with.other;
  if (with.barriers >= since && with.other != kNone && with.other != who.item) return true;
  *out_other = {with.earlier_block, 0, with.earlier_item};
  return with.earlier_block != kNone;
}

void races::access(const actor& who, const unsigned char* at, size_t size_bytes, simt_access how, uint32_t since,
                   const unsigned char* shared_at) {
  if (suspect_) settle();
  if (!found_.empty()) return;
  const auto first = reinterpret_cast<uintptr_t>(at), end = first + size_bytes;
  actor other{};
  for (uintptr_t next = first; next < end;) {
    page& p = page_of(next / kPageBytes);
    if (p.unit > 1 && (first | end) % p.unit) split(&p);
    cell& c = p.cells[next % kPageBytes / p.unit];
    next += p.unit;
    if (shared_at) { // another block's is gone
      if (c.reads.block != who.block) c.reads = {};
      if (c.writes.block != who.block) c.writes = {};
    }
    if (!(is_atomic(how) && c.is_atomic) && conflicts(c.writes, who, since, &other)) {
      report(who, other, at, size_bytes, how, true, shared_at);
      if (how != kSimtWrite || c.is_atomic || size_bytes > suspect_->before.size()) found_ = suspect_->text;
    }
    if (writes(how) && conflicts(c.reads, who, since, &other)) {
      report(who, other, at, size_bytes, how, false, shared_at);
      found_ = suspect_->text;
    }
    if (!found_.empty()) return;
    if (writes(how)) {
      add(&c.writes, who);
      c.is_atomic = is_atomic(how);
    } else if (!is_atomic(how)) {
      add(&c.reads, who);
    }
  }
}

void races::fence() {
  settle();
  pages_.clear();
  recent_ = {};
}

void races::settle() {
  if (suspect_ && found_.empty() && std::memcmp(suspect_->at, suspect_->before.data(), suspect_->size_bytes) != 0)
    found_ = suspect_->text;
  suspect_.reset();
}

void races::report(const actor& who, const actor& other, const unsigned char* at, size_t size_bytes, simt_access how,
                   bool other_writes, const unsigned char* shared_at) {
  char where[64], text[512];
  if (shared_at)
    std::snprintf(where, sizeof where, "shared memory, byte %td of it", at - shared_at);
  else
    std::snprintf(where, sizeof where, "global memory at %p", static_cast<const void*>(at));
  std::snprintf(text, sizeof text,
                "%s: a race in %s: item %u of block %u %s%s %zu bytes that item %u of block %u has %s, and %s", //
                kernel_.c_str(), where, who.item, who.block, is_atomic(how) ? "atomically " : "",
                writes(how) ? "writes" : "reads", size_bytes, other.item, other.block,
                other_writes ? "written" : "read",
                who.block == other.block ? "no barrier is between them" : "nothing orders the blocks of a launch");
  suspect_ = std::make_unique<suspect>(suspect{at, size_bytes, {}, text});
  std::memcpy(suspect_->before.data(), at, std::min(size_bytes, suspect_->before.size()));
}

} // namespace plugin::simt
