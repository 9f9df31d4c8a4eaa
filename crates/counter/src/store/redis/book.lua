-- One slot: crates/budget/src/book.rs and what all operations of ledger.rs share. Everything that an operation changes
-- is kept here until `commit`, so that an error before it, such as a full memory, leaves the slot as it was.
--
-- KEYS[1], a hash: `m` what is known of the whole slot, `a`NAME an account, `h`ID a hold with its stakes, `o`NAME an
-- amount that was set. KEYS[2] and KEYS[3] are made only for slots with many holds, since a key costs more than
-- a small hash: open and ended holds by the time when they are due, and settled ones by the time until which they are
-- remembered.

local BOOK, DUE, DONE = KEYS[1], KEYS[2], KEYS[3]

local HOUR = 3600000
local ENDED_FOR = HOUR         -- As MEMORY in store/mod.rs.
local SETTLED_FOR = HOUR       -- As MEMORY in store/mod.rs.
local SKEW = 60000             -- As SKEW in store/mod.rs.
local ACCOUNTS_MOST = 256      -- As ACCOUNTS_PER_SLOT in store/mod.rs.
local HOLDS_MOST = 1000000     -- As HOLDS_PER_SLOT in store/mod.rs.
local INDEX_FROM = 64          -- More holds than this are found by an index; fewer are cheaper to look through.
local FORGET_MOST = 1000       -- Marks that one call takes out: a slot that was quiet for long must not block Redis.
local KEEP_MOST = 400 * 24 * HOUR  -- As long as the longest window; an amount that was set is kept so long from each use.
local ARGUMENTS_MOST = 4000    -- Lua's stack holds 8000.

local OPEN_CHARGE, OPEN_RELEASE, ENDED, SETTLED = 0, 1, 2, 3

local now = min(clock(), LATEST)

local meta, meta_changed
do
  local packed = redis.call('HGET', BOOK, 'm')
  if packed then
    local t = cmsgpack.unpack(packed)
    meta = { latest = t[1], next = t[2], accounts = t[3], holds = t[4], indexed = t[5], set = t[6] }
  else
    -- The latest time from which a hold is dated; the earliest at which one may be due; accounts, holds and set amounts
    -- in the hash; whether there are indexes.
    meta = { latest = 0, next = NONE, accounts = 0, holds = 0, indexed = 0, set = 0 }
  end
  meta_changed = false
end

local accounts, accounts_changed = {}, {}
local holds, holds_changed = {}, {}
local leases_ended = 0

local function unpack_account(packed)
  local t = cmsgpack.unpack(packed)
  local a = {
    kind = t[1], span = t[2], amount = t[3], at = t[4], behind = t[5], stakes = t[6], policy = t[7], asked = t[8],
    burst = NONE, rival = NONE, stored = true,
  }
  local n
  if a.kind == BUCKET then
    a.used, a.staked, a.ended, a.drained, a.carry, a.tick, a.burst = t[9], t[10], t[11], t[12], t[13], t[14], t[15]
    n = 15
  else
    a.n, a.held, a.spent = t[9], t[10], t[11]
    n = 11
    if a.kind == SLIDING then
      a.pn, a.pheld, a.pspent = t[12], t[13], t[14]
      n = 14
    end
  end
  if t[n + 1] then a.rival, a.rival_amount, a.rival_seen = t[n + 1], t[n + 2], t[n + 3] end
  return a
end

local function pack_account(a)
  local t = { a.kind, a.span, a.amount, a.at, a.behind, a.stakes, a.policy, a.asked }
  if a.kind == BUCKET then
    t[9], t[10], t[11], t[12], t[13], t[14], t[15] = a.used, a.staked, a.ended, a.drained, a.carry, a.tick, a.burst
  else
    t[9], t[10], t[11] = a.n, a.held, a.spent
    if a.kind == SLIDING then t[12], t[13], t[14] = a.pn, a.pheld, a.pspent end
  end
  if a.rival ~= NONE then
    local n = #t
    t[n + 1], t[n + 2], t[n + 3] = a.rival, a.rival_amount, a.rival_seen
  end
  return cmsgpack.pack(t)
end

local function unpack_hold(packed)
  local t = cmsgpack.unpack(packed)
  local h = { state = t[1], from = t[2], lease = t[3], stakes = {}, stored = true }
  for i = 4, #t, 4 do
    h.stakes[#h.stakes + 1] = { name = t[i], held = t[i + 1], lapsed = t[i + 2], mark = t[i + 3] }
  end
  return h
end

local function pack_hold(h)
  local t = { h.state, h.from, h.lease }
  for _, stake in ipairs(h.stakes) do
    local n = #t
    t[n + 1], t[n + 2], t[n + 3], t[n + 4] = stake.name, stake.held, stake.lapsed, stake.mark
  end
  return cmsgpack.pack(t)
end

local function account(name)
  local a = accounts[name]
  if a == nil then
    local packed = redis.call('HGET', BOOK, 'a' .. name)
    a = packed and unpack_account(packed) or false
    accounts[name] = a
  end
  return a
end

local function account_or_new(name, limit)
  local a = account(name)
  if not a then
    a = new_account(limit, now)
    accounts[name] = a
    meta.accounts = meta.accounts + 1
    meta_changed = true
  end
  accounts_changed[name] = true
  return a
end

-- The account as it would be if it were used now, under this limit.
local function as_of(name, limit)
  local a = account(name)
  a = a and copy(a) or new_account(limit, now)
  advance(a, now)
  adopt(a, limit)
  return a
end

local function until_of(h)
  if h.state == ENDED then return h.from + ENDED_FOR end
  if h.state == SETTLED then return h.from + SETTLED_FOR end
  return h.from + h.lease
end

local function hold(id)
  local h = holds[id]
  if h == nil then
    local packed = redis.call('HGET', BOOK, 'h' .. id)
    h = packed and unpack_hold(packed) or false
    if not h and meta.indexed == 1 then
      local score = redis.call('ZSCORE', DONE, id)
      if score and tonumber(score) > now then
        h = { state = SETTLED, from = tonumber(score) - SETTLED_FOR, lease = 0, stakes = {}, stored = false }
      end
    end
    holds[id] = h
  end
  return h
end

-- Notes that a hold is new, or has changed.
local function put_hold(id, h)
  holds[id] = h
  holds_changed[id] = true
  local due = until_of(h)
  if meta.next == NONE or due < meta.next then meta.next, meta_changed = due, true end
  if h.from > meta.latest then meta.latest, meta_changed = h.from, true end
end

-- Takes out a hold with its stakes.
local function remove_hold(id, h)
  for _, stake in ipairs(h.stakes) do
    local a = account(stake.name)
    if a then
      a.stakes = sub(a.stakes, 1)
      accounts_changed[stake.name] = true
    end
  end
  -- Whether the hash has a field to take out is remembered where the hold was.
  holds[id] = { gone = true, stored = h.stored }
  holds_changed[id] = true
end

local function is_there(h) return h and not h.gone end

-- Every hold in the hash, and the one that is being made, by id.
local function all_holds()
  local fields = redis.call('HGETALL', BOOK)
  local all = {}
  for i = 1, #fields, 2 do
    local field = fields[i]
    if string.byte(field) == 104 then
      local id = string.sub(field, 2)
      if holds[id] == nil then holds[id] = unpack_hold(fields[i + 1]) end
    end
  end
  for id, h in pairs(holds) do
    if is_there(h) then all[id] = h end
  end
  return all
end

-- A hold leaves its state: from open to ended, from ended or settled to nothing.
local function pass(id, h, at)
  if h.state == OPEN_CHARGE or h.state == OPEN_RELEASE then
    local release = h.state == OPEN_RELEASE
    h.state, h.from, h.lease = ENDED, at, 0
    for _, stake in ipairs(h.stakes) do
      local a = account(stake.name)
      if a then
        advance(a, at)
        end_stake(a, stake, release)
        accounts_changed[stake.name] = true
      end
    end
    leases_ended = leases_ended + 1
    put_hold(id, h)
  end
  if until_of(h) > now then return end
  for _, stake in ipairs(h.stakes) do
    local a = account(stake.name)
    if a then forget(a, stake) end
  end
  remove_hold(id, h)
end

-- Ends the holds whose lease is over and forgets those remembered long enough.
local function sweep()
  if now < meta.latest then
    -- After a step back of the clock a lease runs from now, or it would last until the clock is back.
    for id, h in pairs(all_holds()) do
      if h.from > now then
        h.from = now
        put_hold(id, h)
      end
    end
    if meta.indexed == 1 then
      local late = redis.call('ZRANGEBYSCORE', DONE, '(' .. string.format('%d', now + SETTLED_FOR), '+inf')
      for _, id in ipairs(late) do redis.call('ZADD', DONE, now + SETTLED_FOR, id) end
    end
    meta.latest, meta_changed = now, true
  end
  if meta.indexed == 1 then
    local over = redis.call('ZRANGEBYSCORE', DONE, '-inf', now, 'LIMIT', 0, FORGET_MOST)
    if #over > 0 then redis.call('ZREM', DONE, unpack(over)) end
  end
  if meta.next == NONE or meta.next > now then return end
  local due, next = {}, NONE
  local function look(id, h)
    local at = until_of(h)
    if at <= now then
      due[#due + 1] = { at = at, id = id, hold = h }
    elseif next == NONE or at < next then
      next = at
    end
  end
  if meta.indexed == 1 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now)) do
      local h = hold(id)
      if is_there(h) then look(id, h) else redis.call('ZREM', DUE, id) end
    end
    local first = redis.call('ZRANGEBYSCORE', DUE, '(' .. string.format('%d', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] and (next == NONE or tonumber(first[2]) < next) then next = tonumber(first[2]) end
    -- Moved by a step back of the clock just now, and not yet in the index.
    for id in pairs(holds_changed) do
      local h = holds[id]
      if is_there(h) and until_of(h) > now and (next == NONE or until_of(h) < next) then next = until_of(h) end
    end
  else
    for id, h in pairs(all_holds()) do look(id, h) end
  end
  meta.next, meta_changed = next, true
  table.sort(due, function(one, other)
    if one.at ~= other.at then return one.at < other.at end
    return one.id < other.id
  end)
  for _, one in ipairs(due) do pass(one.id, one.hold, one.at) end
end

-- Forgets idle accounts if those wanted would not fit otherwise: the index of the first that still does not.
local function make_room(wanted)
  local function without_room()
    local room, added = ACCOUNTS_MOST - meta.accounts, {}
    for index, name in ipairs(wanted) do
      if name and not account(name) and not added[name] then
        if room <= 0 then return index end
        room = room - 1
        added[name] = true
      end
    end
    return nil
  end
  if not without_room() then return nil end
  local fields = redis.call('HGETALL', BOOK)
  for i = 1, #fields, 2 do
    if string.byte(fields[i]) == 97 then
      local name = string.sub(fields[i], 2)
      local a = account(name)
      if a then
        if notice(a, now) then accounts_changed[name] = true end
        if is_idle(a, now) then
          accounts[name] = false
          accounts_changed[name] = true
          meta.accounts, meta_changed = meta.accounts - 1, true
        end
      end
    end
  end
  return without_room()
end

-- All stakes in an account whose numbers were begun anew.
local function lapse_stakes(name)
  for id, h in pairs(all_holds()) do
    for _, stake in ipairs(h.stakes) do
      if stake.name == name then
        lapse(stake)
        holds_changed[id] = true
      end
    end
  end
end

local function stake_of(h, name)
  for _, stake in ipairs(h.stakes) do
    if stake.name == name then return stake end
  end
  return nil
end

local function add_to_stake(h, name, amount)
  local stake, a = stake_of(h, name), account(name)
  if not stake then return false end
  if a then
    advance(a, now)
    grow(a, stake, amount)
    accounts_changed[name] = true
  end
  return true
end

-- How long the slot must be kept for what has changed in it.
local function lifetime()
  local need = SETTLED_FOR
  if meta.set > 0 then need = KEEP_MOST end
  for name in pairs(accounts_changed) do
    local a = accounts[name]
    if a then
      local span = 2 * a.span
      if a.kind == BUCKET then span = sub(until_used(a, 0), a.at) + a.span end
      need = max(need, sub(a.at, now) + span)
    end
  end
  for id in pairs(holds_changed) do
    local h = holds[id]
    if is_there(h) then need = max(need, sub(until_of(h), now) + ENDED_FOR) end
  end
  return min(need, KEEP_MOST)
end

-- With room to spare, or every call would have to do it.
local function keep(key, need)
  if redis.call('PTTL', key) < need then redis.call('PEXPIRE', key, need + div(need, 4)) end
end

local function all(command, key, list)
  for from = 1, #list, ARGUMENTS_MOST do
    redis.call(command, key, unpack(list, from, min(from + ARGUMENTS_MOST - 1, #list)))
  end
end

-- From here on holds are found by an index.
local function make_index()
  local due, done, gone = {}, {}, {}
  local kept = 0
  local fields = redis.call('HGETALL', BOOK)
  for i = 1, #fields, 2 do
    if string.byte(fields[i]) == 104 then
      local id, h = string.sub(fields[i], 2), unpack_hold(fields[i + 1])
      local list = due
      if h.state == SETTLED then
        list = done
        gone[#gone + 1] = fields[i]
      else
        kept = kept + 1
      end
      list[#list + 1] = until_of(h)
      list[#list + 1] = id
    end
  end
  all('ZADD', DUE, due)
  all('ZADD', DONE, done)
  all('HDEL', BOOK, gone)
  meta.holds, meta.indexed = kept, 1
end

-- Writes what has changed.
local function commit()
  local put, gone, due, undue, done = {}, {}, {}, {}, {}
  for name in pairs(accounts_changed) do
    local a = accounts[name]
    if a then
      put[#put + 1] = 'a' .. name
      put[#put + 1] = pack_account(a)
    else
      gone[#gone + 1] = 'a' .. name
    end
  end
  for id in pairs(holds_changed) do
    local h = holds[id]
    local field = 'h' .. id
    if h.gone then
      if h.stored then
        gone[#gone + 1] = field
        meta.holds, meta_changed = meta.holds - 1, true
      end
      undue[#undue + 1] = id
    elseif h.state == SETTLED and meta.indexed == 1 then
      done[#done + 1] = until_of(h)
      done[#done + 1] = id
      if h.stored then
        gone[#gone + 1] = field
        meta.holds, meta_changed = meta.holds - 1, true
      end
      undue[#undue + 1] = id
    else
      put[#put + 1] = field
      put[#put + 1] = pack_hold(h)
      if not h.stored then meta.holds, meta_changed = meta.holds + 1, true end
      due[#due + 1] = until_of(h)
      due[#due + 1] = id
    end
  end
  if not meta_changed and #put == 0 and #gone == 0 and #done == 0 then return end
  local function put_meta(list)
    list[#list + 1] = 'm'
    list[#list + 1] =
      cmsgpack.pack({ meta.latest, meta.next, meta.accounts, meta.holds, meta.indexed, meta.set })
    return list
  end
  if meta_changed then put_meta(put) end
  -- First what Redis may refuse for want of memory: nothing has been written then.
  all('HSET', BOOK, put)
  all('HDEL', BOOK, gone)
  if meta.indexed == 1 then
    all('ZREM', DUE, undue)
    all('ZADD', DUE, due)
    all('ZADD', DONE, done)
    if meta.holds == 0 and redis.call('EXISTS', DONE) == 0 then
      meta.indexed = 0
      all('HSET', BOOK, put_meta({}))
    end
  elseif meta.holds > INDEX_FROM then
    make_index()
    all('HSET', BOOK, put_meta({}))
  end
  local need = lifetime()
  keep(BOOK, need)
  if meta.indexed == 1 then
    keep(DUE, need)
    keep(DONE, need)
  end
end
