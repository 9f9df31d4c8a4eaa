-- One account: crates/budget/src/account.rs and window/*.rs, line for line, since whatever differs is a budget that
-- depends on where it is kept. tests/model.rs holds one against the other.
--
-- Numbers are doubles here. Every value and every product stays a whole number below 2^53, so that floor(a / b) is
-- exact: a quotient that is not whole lies farther from the next whole number than a double is wide.

local PARTS = 1000                       -- Time within a window is counted in this many parts.
local LATEST = 9000000000000             -- Year 2255: the last moment whose thousandths stay below 2^53.
local MOST = 4000000000000000            -- The largest amount: two of them add up below 2^53.
local DRAINED_MOST = 9000000000000000    -- Where a bucket's count of drained water stops.
local SLIDING, FIXED, BUCKET = 0, 1, 2
local NONE = -1                          -- No burst, no time behind, no rival: packs into one byte.

local floor, min, max = math.floor, math.min, math.max

local function add(a, b) return min(a + b, MOST) end
local function sub(a, b) return max(a - b, 0) end
local function div(a, b) return floor(a / b) end
local function div_ceil(a, b) return floor((a + b - 1) / b) end

-- `parts` thousandths of an amount, rounded up; split, or the product would pass 2^53.
local function share(amount, parts)
  local rest = amount % PARTS
  return min((amount - rest) / PARTS * parts + div_ceil(rest * parts, PARTS), MOST)
end

-- The most parts of an amount that fit into `room`.
local function most_parts(amount, room)
  local fits, beyond = 0, PARTS + 1
  while beyond - fits > 1 do
    local middle = div(fits + beyond, 2)
    if share(amount, middle) <= room then fits = middle else beyond = middle end
  end
  return fits
end

-- The first millisecond of a window in which `parts` of it have passed.
local function offset_of(parts, span) return div_ceil(parts * span, PARTS) end

local function start_of(a) return a.at - a.at % a.span end
local function parts_of(a) return div(a.at % a.span * PARTS, a.span) end

-- Thousandths of a period since the epoch.
local function tick(at, span) return div(at, span) * PARTS + div(at % span * PARTS, span) end

-- What flows out of a bucket in `ticks`, no more than `most`, and the thousandths left over.
local function flow(rate, ticks, carry, most)
  local rest = rate % PARTS
  local whole = (rate - rest) / PARTS
  if whole > 0 and ticks > div(most, whole) then return most, 0 end
  local thousandths = ticks % PARTS * rest + carry
  local units = whole * ticks + div(ticks, PARTS) * rest + div(thousandths, PARTS)
  return min(units, MOST), thousandths % PARTS
end

-- The fewest ticks in which an amount, at most one period's and not nothing, flows.
local function least_ticks(rate, carry, amount)
  local short, enough = 0, PARTS
  while enough - short > 1 do
    local middle = div(short + enough, 2)
    if flow(rate, middle, carry, MOST) >= amount then enough = middle else short = middle end
  end
  return enough
end

-- Puts the numbers of a new state into an account.
local function begin(a)
  if a.kind == BUCKET then
    a.used, a.staked, a.ended, a.drained, a.carry, a.tick = 0, 0, 0, 0, 0, 0
  else
    a.n, a.held, a.spent = 1, 0, 0
    if a.kind == SLIDING then a.pn, a.pheld, a.pspent = 0, 0, 0 end
  end
end

local function new_account(limit, now)
  local a = {
    kind = limit.kind, span = limit.span, amount = limit.amount, burst = limit.burst,
    at = now, behind = NONE, stakes = 0, policy = 0, asked = 0, rival = NONE,
  }
  begin(a)
  return a
end

local function copy(a)
  local c = {}
  for name, value in pairs(a) do c[name] = value end
  return c
end

local function capacity_of(limit)
  if limit.amount == 0 then return 0 end
  if limit.kind == BUCKET and limit.burst ~= NONE then return limit.burst end
  return limit.amount
end

-- An empty bucket owes no fractions; one without stakes needs no count of what they lost.
local function settle_down(a)
  if a.used == 0 then a.carry = 0 end
  if a.staked == 0 then a.drained = 0 end
end

local function roll(a, to)
  if a.kind == BUCKET then
    local now = tick(to, a.span)
    local before = min(a.used, a.staked)
    local drained, carry = flow(a.amount, sub(now, a.tick), a.carry, a.used)
    a.used, a.carry = sub(a.used, drained), carry
    -- Spent water drains first; what open holds lost is counted.
    a.drained = min(a.drained + sub(before, min(a.used, a.staked)), DRAINED_MOST)
    settle_down(a)
    a.tick = max(a.tick, now)
    return
  end
  local windows = div(sub(to, start_of(a)), a.span)
  if windows == 0 then return end
  if a.kind == SLIDING then
    if windows == 1 then
      a.pn, a.pheld, a.pspent = a.n, a.held, a.spent
    else
      a.pn, a.pheld, a.pspent = 0, 0, 0
    end
  end
  a.n, a.held, a.spent = a.n + 1, 0, 0
end

-- The clock was ahead and is set back: what was current still is, what was older no longer counts.
local function rebase(a)
  if a.kind == SLIDING then
    a.pn, a.pheld, a.pspent = 0, 0, 0
  elseif a.kind == BUCKET then
    a.tick = tick(a.at, a.span) + 1
  end
end

-- Remembers that the clock is behind; whether that was news.
local function notice(a, clock)
  if clock >= a.at or (a.behind ~= NONE and a.behind <= clock) then return false end
  a.behind = clock
  return true
end

-- When a clock that is behind will rule again, if it has not caught up by then.
local function resume(a)
  if a.behind ~= NONE and a.behind + a.span < a.at then return a.behind + a.span end
  return nil
end

-- Lets time pass up to what the clock says.
local function advance(a, clock)
  notice(a, clock)
  local again = resume(a)
  if again and again <= clock then
    a.at = again
    rebase(a)
  end
  if clock >= a.at then
    roll(a, clock)
    a.at, a.behind = clock, NONE
  end
end

-- What counts now: held, and spent.
local function used(a)
  if a.kind == FIXED then return a.held, a.spent end
  if a.kind == BUCKET then
    local held = min(a.used, a.staked, sub(a.staked, a.ended))
    return held, a.used - held
  end
  local left = PARTS - parts_of(a)
  -- Rounded up as one sum: two halves of a request are one request.
  local previous = share(add(a.pheld, a.pspent), left)
  local held = min(share(a.pheld, left), previous)
  return add(a.held, held), add(a.spent, previous - held)
end

local function total(a)
  local held, spent = used(a)
  return add(held, spent)
end

-- The first moment at which no more than `target` is used, if nothing else happens.
local function until_used(a, target)
  if total(a) <= target then return a.at end
  if a.kind == FIXED then return start_of(a) + a.span end
  if a.kind == SLIDING then
    local start, current = start_of(a), add(a.held, a.spent)
    local fading, room = current, target
    if current <= target then
      fading, room = add(a.pheld, a.pspent), sub(target, current)
    else
      start = start + a.span
    end
    return start + offset_of(PARTS - most_parts(fading, room), a.span)
  end
  if a.amount == 0 then return LATEST end
  local excess = sub(a.used, target)
  -- At least one unit is left for the last period: what is carried may make it come a tick sooner.
  local periods = div(excess - 1, a.amount)
  local ticks = a.tick % PARTS + least_ticks(a.amount, a.carry, excess - periods * a.amount)
  periods = div(a.tick, PARTS) + periods + div(ticks, PARTS)
  if periods > div(LATEST, a.span) then return LATEST end
  return min(periods * a.span + div_ceil(ticks % PARTS * a.span, PARTS), LATEST)
end

-- How long from `clock` until no more than `target` is used.
local function wait(a, clock, target)
  if total(a) <= target then return 0 end
  local again = resume(a)
  if again then
    a = copy(a)
    advance(a, again)
  end
  return sub(until_used(a, target), clock)
end

-- A tick already begun is not waited for in full, so it does not drain what comes during it.
local function pour(a, amount)
  if a.used == 0 then a.tick = tick(a.at, a.span) + 1 end
  a.used = add(a.used, amount)
end

-- Spends without a hold.
local function owe(a, amount)
  if amount == 0 then return end
  if a.kind == BUCKET then pour(a, amount) else a.spent = add(a.spent, amount) end
end

-- Takes over a limit that may have changed; whether the account's stakes have lapsed by that.
local function adopt(a, limit)
  if a.kind == limit.kind and a.span == limit.span and a.amount == limit.amount and a.burst == limit.burst then
    return false
  end
  local was, before = a.kind, total(a)
  a.kind, a.span, a.amount, a.burst = limit.kind, limit.span, limit.amount, limit.burst
  if was == a.kind then
    if a.kind == BUCKET then a.tick = tick(a.at, a.span) + 1 end
    return false
  end
  begin(a)
  owe(a, before)
  return true
end

-- The names of the sums in which a stake of this mark counts, while its window counts.
local function sums_of(a, mark)
  if a.n == mark then return 'held', 'spent' end
  if a.kind == SLIDING and a.pn == mark then return 'pheld', 'pspent' end
  return nil
end

local function lapse(stake)
  stake.lapsed, stake.held = add(stake.held, stake.lapsed), 0
end

local function take(a, amount)
  if a.kind == BUCKET then
    pour(a, amount)
    a.staked = add(a.staked, amount)
    return { held = amount, lapsed = 0, mark = a.drained }
  end
  a.held = add(a.held, amount)
  return { held = amount, lapsed = 0, mark = a.n }
end

-- Adds to an open stake.
local function grow(a, stake, amount)
  if a.kind == BUCKET then
    pour(a, amount)
    a.staked = add(a.staked, amount)
    stake.held = add(stake.held, amount)
    return
  end
  local held = sums_of(a, stake.mark)
  if held then
    a[held] = add(a[held], amount)
    stake.held = add(stake.held, amount)
  else
    -- Its window is over: what is added counts in the current one.
    lapse(stake)
    a.held = add(a.held, amount)
    stake.held, stake.mark = amount, a.n
  end
end

local function unstake(a, stake, open)
  a.staked = sub(a.staked, stake.held)
  if not open then a.ended = sub(a.ended, stake.held) end
end

-- Gives back to a bucket what is left of a stake: water that has drained is not given back once more.
local function refund(a, stake, open, unused)
  local left = 0
  if a.drained ~= DRAINED_MOST then
    left = min(sub(stake.held, min(sub(a.drained, stake.mark), MOST)), a.used)
  end
  local refunded = min(unused, left)
  unstake(a, stake, open)
  a.used = sub(a.used, refunded)
  settle_down(a)
  return refunded
end

-- Replaces a stake by the true cost: what was given back, and what is owed beyond it.
local function close(a, stake, open, spent)
  local held_sum, spent_sum
  if a.kind ~= BUCKET then
    held_sum, spent_sum = sums_of(a, stake.mark)
    if not held_sum then lapse(stake) end
  end
  local beyond = sub(spent, stake.lapsed)
  local kept, debt = min(beyond, stake.held), sub(beyond, stake.held)
  if a.kind == BUCKET then
    local refunded = refund(a, stake, open, stake.held - kept)
    if debt > 0 then pour(a, debt) end
    return refunded, debt
  end
  if not held_sum then
    a.spent = add(a.spent, debt)
  elseif open then
    a[held_sum] = sub(a[held_sum], stake.held)
    a[spent_sum] = add(add(a[spent_sum], kept), debt)
  else
    a[spent_sum] = add(sub(a[spent_sum], stake.held - kept), debt)
  end
  return stake.held - kept, debt
end

-- The lease of an open stake has ended. What is left in the stake is what has been charged.
local function end_stake(a, stake, release)
  if a.kind == BUCKET then
    if not release then
      a.ended = add(a.ended, stake.held)
      return
    end
    local refunded = refund(a, stake, true, stake.held)
    lapse(stake)
    stake.lapsed = sub(stake.lapsed, refunded)
    return
  end
  local held_sum, spent_sum = sums_of(a, stake.mark)
  if not held_sum then
    lapse(stake)
    return
  end
  a[held_sum] = sub(a[held_sum], stake.held)
  if release then stake.held = 0 else a[spent_sum] = add(a[spent_sum], stake.held) end
end

-- An ended stake will not be corrected any more.
local function forget(a, stake)
  if a.kind == BUCKET then
    unstake(a, stake, false)
    settle_down(a)
  end
end

-- Nothing would be lost by forgetting the account at this time.
local function is_idle(a, clock)
  if a.stakes > 0 then return false end
  local c = copy(a)
  advance(c, clock)
  return total(c) == 0 or a.amount == 0
end

-- Appends an account's four numbers.
local function put_standing(to, a, clock)
  local held, spent = used(a)
  local n = #to
  to[n + 1], to[n + 2], to[n + 3], to[n + 4] = capacity_of(a), held, spent, wait(a, clock, 0)
end
